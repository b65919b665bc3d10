"""Files are read within limits: only regular files, and never an exception other than ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aacp.disk.parsing import MAX_DEPTH, MAX_DIGITS, parse_json
from aacp.disk.reading import open_file, read_bytes, read_json, read_json_lines, read_text, sha256_of
from aacp.errors import DamagedFile, MissingFile, UnreadableFile

REMEDY = "Do this."
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab[]{}\"\\,", max_size=8), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file.json"
    path.write_bytes(content)
    return path


# -- what is not a file ----------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"There is no file .*nothing\.json\. Do this\."):
        read_json(tmp_path / "nothing.json", REMEDY)
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingFile):
        read_bytes(tmp_path / "file" / "inside")


def test_a_pipe_a_device_a_socket_and_a_folder_are_rejected_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for place in (tmp_path / "pipe", tmp_path / "socket", tmp_path, Path("/dev/zero")):
            for reading in (read_bytes, read_text, read_json, sha256_of, lambda path: list(read_json_lines(path))):
                with pytest.raises(UnreadableFile, match=f"{place} "):
                    reading(place)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800"])
def test_a_path_that_the_system_does_not_accept_is_an_unreadable_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableFile) as raised:
        read_bytes(tmp_path / name)
    assert len(str(raised.value)) < 600


def test_a_link_to_a_file_is_followed_and_a_circle_of_links_is_not(tmp_path: Path) -> None:
    written(tmp_path, b"[1]")
    (tmp_path / "link").symlink_to("file.json")
    assert read_json(tmp_path / "link") == [1]
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UnreadableFile, match="circle"):
        read_json(tmp_path / "circle")


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, b"1")
    path.chmod(0)
    with pytest.raises(UnreadableFile, match="Permission denied"):
        read_json(path)


def test_an_error_of_the_system_while_reading_is_an_unreadable_file(tmp_path: Path) -> None:
    path = written(tmp_path, b"1")
    with (
        pytest.raises(UnreadableFile, match=r"cannot be read: Input/output error\. Do this\."),
        open_file(path, REMEDY),
    ):
        raise OSError(5, os.strerror(5))


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_file_is_rejected_by_its_size_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(DamagedFile, match="4,398,046,511,104 bytes"):
        read_bytes(path)
    with pytest.raises(DamagedFile, match="at most"):
        read_json(path)
    with pytest.raises(DamagedFile, match="Line 1 of"):
        list(read_json_lines(path))
    assert read_bytes(written(tmp_path, b"abc"), limit=3) == b"abc"
    with pytest.raises(DamagedFile):
        read_bytes(written(tmp_path, b"abcd"), limit=3)


def test_a_small_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = written(tmp_path, b"[1, 2]")
    code = (
        "import resource, sys\n"
        "from aacp.disk.reading import read_bytes, read_json, read_json_lines\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "print(read_bytes(sys.argv[1]), read_json(sys.argv[1]), list(read_json_lines(sys.argv[1])))\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert found.stdout == "b'[1, 2]' [1, 2] []\n", found.stderr


def test_a_file_of_the_system_without_a_size_is_read_to_its_end() -> None:
    assert os.stat("/proc/self/status").st_size == 0
    assert f"Pid:\t{os.getpid()}\n" in read_text("/proc/self/status")
    with pytest.raises(DamagedFile, match="more than 10 bytes"):
        read_bytes("/proc/self/status", limit=10)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"[1,]", "it is not JSON"),
        (b"\xff\xfe[1]", "not UTF-8 text at byte 0"),
        (b'["\x80"]', "not UTF-8 text at byte 2"),
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 64 levels"),
        (b"[" * 100_000, "nested more than 64 levels"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "nested more than 64 levels"),
        (b'["]",' * 500 + b"1" + b"]" * 500, "nested more than 64 levels"),
        (b'["\\\\",["]",' * 300 + b"1" + b"]" * 600, "nested more than 64 levels"),
        (b"[NaN]", "NaN, which is not a number"),
        (b"-Infinity", "-Infinity, which is not a number"),
        (b"[1e400]", "1e400, which is too large"),
        (b"1" + b"0" * 400, "more than 60 digits"),
        (b"9" * 100_000, "more than 60 digits"),
        (b"0." + b"3" * 1000, "more than 60 digits"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'{"a\\u0000b": 1}', "NUL character"),
    ],
)
def test_damaged_json_is_named_with_the_reason_and_the_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DamagedFile, match=reason) as raised:
        read_json(path, REMEDY)
    assert str(raised.value).startswith(f"{path} is damaged: ")
    assert str(raised.value).endswith(f". {REMEDY}")
    log = tmp_path / "log"
    log.write_bytes(b"[1]\n" + content + b"\n")
    with pytest.raises(DamagedFile, match=reason) as raised:
        list(read_json_lines(log, REMEDY))
    assert str(raised.value).startswith(f"Line 2 of {log} is damaged: ")


def test_the_limits_themselves_are_allowed() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(deep) == json.loads(deep)
    with pytest.raises(ValueError, match="levels"):
        parse_json(b"[" + deep + b"]")
    many = b"[" + b",".join([b"[[]]"] * 1000) + b"]"
    assert parse_json(many) == json.loads(many)
    assert parse_json(b"9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    quoted = json.dumps(["[" * 500, '\\"[[', "9" * 500, "\U0001f600", "\\u0000"]).encode()
    assert parse_json(quoted) == json.loads(quoted)


@pytest.mark.slow
@given(JSON, st.sampled_from([None, 2]), st.booleans())
@settings(max_examples=200)
def test_what_json_writes_is_read_back(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text.encode()) == value


@pytest.mark.slow
@given(st.binary(max_size=200) | st.text('[]{}",:\\u01e+-.Naeful ', max_size=60).map(str.encode))
@settings(max_examples=500)
def test_any_bytes_are_a_value_or_a_value_error(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert parse_json(content) == json.loads(content)


# -- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_is_read_line_by_line_and_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"n": 1}\n{"n": 2}\nnonsense\n')
    lines = read_json_lines(log)
    assert [next(lines), next(lines)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(DamagedFile, match="Line 3 of"):
        next(lines)
    log.write_bytes(b'{"n": 1}\n{"n": 2')
    assert list(read_json_lines(log)) == [{"n": 1}]
    log.write_bytes(b"")
    assert list(read_json_lines(log)) == []


def test_text_is_utf_8(tmp_path: Path) -> None:
    assert read_text(written(tmp_path, "Größe".encode())) == "Größe"
    with pytest.raises(DamagedFile, match="not UTF-8 text at byte 2"):
        read_text(written(tmp_path, "Größe".encode("latin-1")))


def test_the_digest_is_that_of_the_whole_file(tmp_path: Path) -> None:
    content = os.urandom(3_000_001)
    assert sha256_of(written(tmp_path, content)) == hashlib.sha256(content).hexdigest()
