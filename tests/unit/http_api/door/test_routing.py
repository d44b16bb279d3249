import pytest

from logdb_http_api.door.door import HttpDoor
from logdb_http_api.door.routing import Router, Routes
from logdb_http_api.errors import ApiError

routes = Routes()
for method, path in (
    ("GET", "/topics"), ("GET", "/topics/{topic}"), ("POST", "/topics/{topic}"), ("GET", "/topics/{topic}/partitions/{partition}"),
    ("GET", "/topics/special"), ("GET", "/topics/special/deep"), ("GET", "/topics/{name}/records:batch"), ("GET", "/"),
):  # fmt: skip
    routes.add(method, path, path, needs=())(lambda request: None)
ROUTER = Router(routes.all)


@pytest.mark.parametrize(
    ("path", "found", "parameters"),
    [
        ("/topics", "/topics", {}),
        ("/", "/", {}),
        ("/topics/t", "/topics/{topic}", {"topic": "t"}),
        ("/topics/a%2Fb%20%C3%A9", "/topics/{topic}", {"topic": "a/b é"}),
        ("/topics/special", "/topics/special", {}),
        ("/topics/special/deep", "/topics/special/deep", {}),
        ("/topics/special/partitions/3", "/topics/{topic}/partitions/{partition}", {"topic": "special", "partition": "3"}),
        ("/topics/t/records:batch", "/topics/{name}/records:batch", {"name": "t"}),
        ("/topics/t/records%3Abatch", "/topics/{name}/records:batch", {"name": "t"}),
    ],
)
def test_a_path_leads_to_its_route(path, found, parameters):
    route, given = ROUTER.find("GET", path)
    assert (route.path, given) == (found, parameters)


@pytest.mark.parametrize(
    "path", ["/nope", "/topics/", "/topics/t/", "/topics//partitions/1", "//topics", "/topics/t/partitions", "/topics/{topic}/x"]
)
def test_other_paths_lead_nowhere(path):
    with pytest.raises(ApiError) as caught:
        ROUTER.find("GET", path)
    assert caught.value.status == 404


def test_another_method():
    with pytest.raises(ApiError, match="takes GET, HEAD, POST, not DELETE") as caught:
        ROUTER.find("DELETE", "/topics/t")
    assert (caught.value.status, caught.value.headers) == (405, {"Allow": "GET, HEAD, POST"})


def test_head_has_the_route_of_get():
    assert ROUTER.find("HEAD", "/topics/t") == ROUTER.find("GET", "/topics/t")
    with pytest.raises(ApiError) as caught:
        Router([route for route in routes.all if route.method == "POST"]).find("HEAD", "/topics/t")
    assert (caught.value.status, caught.value.headers) == (405, {"Allow": "POST"})


def test_the_same_route_twice():
    with pytest.raises(ValueError, match="is there already"):
        Router([*routes.all, routes.all[0]])


def test_the_routes_of_the_door_fit_together():
    routes = HttpDoor(None, "127.0.0.1:0").routes
    router = Router(routes)
    for route in routes:
        path = "/".join("x" if part.startswith("{") else part for part in route.path.split("/"))
        assert router.find(route.method, path)[0].path == route.path
