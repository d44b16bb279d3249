"""An S3 that others wrote: moto's server, in a thread."""

from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

CREDENTIALS = {"aws.access.key.id": "test", "aws.secret.access.key": "test", "s3.region": "us-east-1"}
"""Properties of connectors that use it."""


class S3:
    """The server, and a client of Amazon's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def bucket(self, name: str) -> str:
        self.client.create_bucket(Bucket=name)
        return name

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Names and contents."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        names = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {name: self.client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3(f"http://{host}:{port}")
    server.stop()
