"""The command as a process: signals, pipes, names, shells, terminals."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys

import pytest

import logdb
from support.serving import served
from support.tools import needs

LOGDB = os.path.join(os.path.dirname(sys.executable), "logdb")
pytestmark = pytest.mark.skipif(not os.path.exists(LOGDB), reason="the script logdb is not installed")


@pytest.fixture
def data_dir(tmp_path):
    path = str(tmp_path / "db")
    with logdb.open(path) as db:
        db.create_topic("small")
        db.create_topic("large", partitions=2)
        db.log("small").append_many([b"%d" % n for n in range(100)])
        for partition in range(2):
            db.log("large", partition).append_many([b"%0100d" % n for n in range(20_000)])
    return path


@contextlib.contextmanager
def running(*args, data_dir, **options):
    """The command as a child with pipes; killed at the end if it still runs."""
    env = {**os.environ, "LOGDB_DATA_DIR": data_dir}
    with subprocess.Popen([LOGDB, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **options) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def run(*args, data_dir="", command=LOGDB, **options):
    env = {**os.environ, "LOGDB_DATA_DIR": data_dir, **options.pop("env", {})}
    return subprocess.run([command, *args], capture_output=True, text=True, env=env, timeout=60, **options)


# ---------------------------------------------------------------- pipes and signals


@pytest.mark.parametrize("args", [["consume", "large"], ["consume", "large", "--json"], ["consume", "large", "--follow"]])
def test_a_reader_that_has_had_enough_is_no_failure(data_dir, args):
    with running(*args, data_dir=data_dir) as child:
        assert child.stdout.readline()
        child.stdout.close()
        assert child.wait(30) == 0
        assert child.stderr.read() == ""


def test_dump_into_a_closed_pipe(data_dir):
    with running("dump", f"{data_dir}/large-0", "--print-data-log", data_dir=data_dir) as child:
        assert child.stdout.readline().startswith("Dumping")
        child.stdout.close()
        assert (child.wait(30), child.stderr.read()) == (0, "")


def test_head_ends_the_pipeline(data_dir):
    script = f"set -o pipefail; {LOGDB} consume large | head -n 1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "LOGDB_DATA_DIR": data_dir})
    assert (result.returncode, result.stdout, result.stderr) == (0, "0" * 100 + "\n", "")


@contextlib.contextmanager
def at(place, data_dir):
    """How the command is told where the database is: the directory, or a server that has it open."""
    if place == "path":
        yield ["--data-dir", data_dir]
        return
    with served(data_dir) as server:
        yield ["-b", server.url]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("more", [["-o", "-1"], ["--group", "g", "--from-beginning"]])
def test_following_ends_by_a_signal(data_dir, number, more, place):
    with at(place, data_dir) as where, running("consume", "small", "--follow", *more, *where, data_dir="") as child:
        assert child.stdout.readline() == ("99\n" if "-o" in more else "0\n")
        child.send_signal(number)
        assert (child.wait(30), child.stderr.read()) == (130 if number == signal.SIGINT else 0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_mirror_ends_by_a_signal(data_dir, tmp_path, number):
    target = str(tmp_path / "target")
    assert run("mirror", data_dir, target, "--topics", "small", "--once").returncode == 0
    with running("mirror", data_dir, target, "--topics", "small", data_dir="") as child:
        with running("consume", "small", "--follow", "-o", "100", "-c", "1", data_dir=target) as reader, logdb.open(data_dir) as db:
            db.log("small").append(b"new", durability="os")
            assert reader.stdout.readline() == "new\n"
        child.send_signal(number)
        assert child.wait(30) == (130 if number == signal.SIGINT else 0)
        assert "Traceback" not in child.stderr.read()


def test_producing_through_a_server_ends_cleanly(data_dir, tmp_path):
    path = tmp_path / "app.log"
    path.write_text("a\nb\n")
    with at("url", data_dir) as where, running("produce", "small", "--follow", str(path), *where, data_dir="") as child:
        with running("consume", "small", "--follow", "-o", "100", "-c", "2", *where, data_dir="") as reader:
            assert reader.communicate(timeout=30) == ("a\nb\n", "")
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert "appended 2 records" in child.stderr.read()


def test_no_server_answers(data_dir):
    """A call that finds none tries until its time is over, and fails by name."""
    with served(data_dir) as server:
        where = ["-b", server.url]
    result = run("topics", *where, "--request-timeout-ms", "300")
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert server.url in result.stderr


def test_follow_sees_what_another_process_appends(data_dir):
    follow = ("consume", "--follow", "-o", "end", "-c", "1", "-f", "%p %s\\n")
    with running(*follow, "small", data_dir=data_dir) as one, running(*follow, "large", data_dir=data_dir) as two:
        with logdb.open(data_dir) as db:
            # they may not have looked for the end yet: append until both have seen something
            while one.poll() is None or two.poll() is None:
                db.log("small").append(b"x")
                db.log("large", 1).append(b"y")
                db.flush(sync=False)
        assert (one.stdout.read(), two.stdout.read()) == ("0 x\n", "1 y\n")
        assert (one.returncode, two.returncode) == (0, 0)


def test_produce_follows_a_file_and_ends_cleanly(data_dir, tmp_path):
    path = tmp_path / "app.log"
    path.write_text("a\nb\n")
    reading = ("consume", "small", "--follow", "-o", "100")
    with running("produce", "small", "--follow", str(path), data_dir=data_dir) as child, running(*reading, data_dir=data_dir) as reader:
        assert [reader.stdout.readline(), reader.stdout.readline()] == ["a\n", "b\n"]
        with path.open("a") as file:
            file.write("c\nnot a whole line")
        assert reader.stdout.readline() == "c\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
        assert "appended 3 records" in child.stderr.read()
        reader.send_signal(signal.SIGINT)
    with logdb.open(data_dir) as db:
        assert db.log("small").end_offset == 103
        assert db.reports == (), "it was closed: nothing was to be recovered"


def test_ctrl_c_of_what_was_not_to_end_so(data_dir):
    with running("produce", "small", data_dir=data_dir, stdin=subprocess.PIPE) as child:
        child.stdin.write("a\n")
        child.stdin.flush()
        with running("consume", "small", "--follow", "-o", "100", "-c", "1", data_dir=data_dir) as reader:
            assert reader.stdout.readline() == "a\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 128 + signal.SIGINT
        assert "Traceback" not in child.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_is_still_read_in(tmp_path, number):
    """No traceback, and to a shell the code of the signal."""
    slow = tmp_path / "click"
    slow.mkdir()
    fifo = tmp_path / "began"
    os.mkfifo(fifo)
    (slow / "__init__.py").write_text(f"open({str(fifo)!r}, 'w').close()\nwhile True: pass\n")
    child = subprocess.Popen([LOGDB, "topics"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, stderr=subprocess.PIPE, text=True)
    fifo.read_bytes()
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (-number, "")


def test_killed_producer_leaves_what_it_had_written(data_dir):
    with running("produce", "small", "--durability", "fsync", data_dir=data_dir, stdin=subprocess.PIPE) as child:
        child.stdin.write("a\n")
        child.stdin.flush()
        with running("consume", "small", "--follow", "-o", "100", "-c", "1", data_dir=data_dir) as reader:
            assert reader.stdout.readline() == "a\n"
        child.kill()
    result = run("consume", "small", "-o", "-1", data_dir=data_dir)
    assert (result.stdout, result.returncode) == ("a\n", 0)
    assert run("produce", "small", data_dir=data_dir, input="b\n").returncode == 0


def test_writing_beside_a_writer_is_refused_by_its_name(data_dir):
    with logdb.open(data_dir):
        refused = ("produce small", "topics create x", "topics delete small --yes", "configs alter small -s flush.ms=5")
        for args in map(str.split, refused):
            result = run(*args, data_dir=data_dir, input="x\n")
            assert result.returncode == 2
            assert f"process {os.getpid()} on {socket.gethostname()}" in result.stderr
            assert "-b URL" in result.stderr
        assert run("consume", "small", "-c", "1", data_dir=data_dir).stdout == "0\n"
        assert run("topics", "delete", "small", data_dir=data_dir).returncode == 0, "what only shows needs no lock"


# ---------------------------------------------------------------- names, shells, terminals


@pytest.mark.parametrize("suffix", ["", ".sh"])
def test_called_by_the_names_of_kafkas_tools(data_dir, tmp_path, suffix):
    def tool(name, *args, **options):
        path = tmp_path / f"{name}{suffix}"
        path.symlink_to(LOGDB)
        result = run(*args, command=str(path), data_dir=data_dir, **options)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert tool("kafka-topics", "--list") == "large\nsmall\n"
    assert tool("kafka-console-producer", "--topic", "small", input="x\n") == ""
    consumed = tool("kafka-console-consumer", "--topic", "small", "--partition", "0", "--offset", "99", "--max-messages", "2")
    assert consumed == "99\nx\n"
    assert tool("kafka-get-offsets", "--topic", "small") == "small:0:101\n"
    assert json.loads(tool("kafka-log-dirs", "--describe").splitlines()[-1])["version"] == 1  # behind Kafka's two lines of words
    assert "Dynamic configs" in tool("kafka-configs", "--entity-type", "topics", "--entity-name", "small", "--describe")
    assert "isvalid: true" in tool("kafka-dump-log", "--files", f"{data_dir}/small-0/{0:020d}.log")


def test_module_runs_where_the_script_is_not_on_the_path():
    result = subprocess.run([sys.executable, "-m", "logdb.cli", "--version"], capture_output=True, text=True)
    assert result.stdout == f"logdb {logdb.__version__}\n"


def test_without_the_extra_the_message_says_what_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')")
    result = run("topics", env={"PYTHONPATH": str(tmp_path)})
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "logdb: the command needs the package 'click' of the extra 'cli': pip install 'click>=8.1' 'rich>=13'\n"


@pytest.mark.parametrize(
    ("package", "what", "args"), [("h11", "a URL", ["-b", "http://127.0.0.1:1", "topics"]), ("aiohttp", "a server", ["serve", "db"])]
)
def test_without_a_package_the_message_says_what_to_install(tmp_path, package, what, args):
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run(*args, env={"PYTHONPATH": path}, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    wanted = "'aiohttp>=3.14' 'google-re2>=1.1' 'h11>=0.16' 'msgspec>=0.20'"
    assert result.stderr == f"logdb: {what} needs the package '{package}' of the extra 'http': pip install {wanted}\n"


def test_bash_completes_verbs_and_topics(data_dir):
    script = f"""
        PATH={os.path.dirname(LOGDB)}:$PATH
        eval "$(logdb completion bash)"
        complete() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _logdb_completion logdb; echo "${{COMPREPLY[*]}}"; }}
        complete logdb cons
        complete logdb consume sm
    """
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "LOGDB_DATA_DIR": data_dir})
    assert result.stdout.splitlines() == ["consume", "small"], result.stderr


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in ("zsh", "fish")])
def test_completion_script_is_sound(shell):
    assert subprocess.run([shell, "-n"], input=run("completion", shell).stdout, text=True).returncode == 0


def in_a_terminal(*args, data_dir):
    """What the command prints where stdout and stderr are a terminal of 80 columns."""
    leader, follower = pty.openpty()
    env = {**os.environ, "LOGDB_DATA_DIR": data_dir, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen([LOGDB, *args], stdin=follower, stdout=follower, stderr=follower, env=env) as child:
        os.close(follower)
        parts = []
        with contextlib.suppress(OSError):  # Linux: how a terminal says that no process holds its other end
            while part := os.read(leader, 65_536):
                parts.append(part)
        os.close(leader)
        assert child.wait(60) == 0
    return b"".join(parts).decode()


def test_tables_are_drawn_in_a_terminal(data_dir):
    shown = in_a_terminal("topics", "describe", "large", data_dir=data_dir)
    assert "\x1b[" in shown
    assert "20,000" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert all(len(line) <= 80 for line in plain.splitlines())
    assert "\x1b[" in in_a_terminal("--help", data_dir=data_dir)


def test_long_work_shows_a_bar_in_a_terminal(data_dir, tmp_path):
    (tmp_path / "lines").write_bytes(b"x" * 99 + b"\n" + b"y\n" * 2_000_000)
    shown = in_a_terminal("produce", "small", str(tmp_path / "lines"), data_dir=data_dir)
    assert "MB/s" in shown
    assert "2,000,001 records" in shown
    quiet = run("produce", "small", str(tmp_path / "lines"), data_dir=data_dir)
    assert (quiet.stdout, "\x1b[" in quiet.stderr) == ("", False)
