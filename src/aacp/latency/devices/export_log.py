"""ExportLog: the networks that an export has written so far, so that the same call continues a stopped export."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aacp.disk.folders import LOCK, names_in
from aacp.disk.parsing import parse_json
from aacp.disk.reading import read_json_lines, sha256_of
from aacp.disk.writing import append_line
from aacp.errors import InvalidOption, RunMismatch, UnreadableFile

LOG = "exported.jsonl"
REMOVE = "Remove the folder to export again, or give the name of one that does not exist yet."
MAX_SHOWN = 60  # characters of a value in an error


class ExportLog:
    """A log in the folder of an export: its request, and then the SHA-256 of all files of each network.

    Args:
        folder: the folder of the export; one with a log of another request is rejected.
        request: what the networks depend on, as plain data by name.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any]) -> None:
        self._folder = folder
        wanted = json.loads(json.dumps(request))
        lines = list(read_json_lines(folder / LOG, REMOVE, _object)) if (folder / LOG).exists() else []
        if not lines:
            self._append(wanted)
        elif lines[0] != wanted:
            raise RunMismatch(
                f"{folder} holds the networks of another request: {_difference(lines[0], wanted)}. Repeat the options "
                "that it was made with, or give the name of a folder that does not exist yet."
            )
        self.complete = {str(each.get("network")) for each in lines[1:] if self._is_whole(each.get("files"))}

    def add(self, network: str, files: Iterable[Path]) -> None:
        """Add a network. All its files must have been written."""
        self._append({"network": network, "files": {file.name: sha256_of(file) for file in files}})
        self.complete.add(network)

    def _append(self, line: Mapping[str, Any]) -> None:
        append_line(self._folder / LOG, json.dumps(line).encode())

    def _is_whole(self, files: Any) -> bool:
        """Whether the folder holds all files that a line lists, with the same content."""
        if not isinstance(files, dict) or not files:
            return False
        try:
            return all(sha256_of(self._folder / name) == digest for name, digest in files.items())
        except UnreadableFile:
            return False


def require_folder_of_export(folder: Path) -> None:
    """Reject a file, and a folder that holds other files and no export."""
    if folder.exists() and (not folder.is_dir() or (set(names_in(folder)) - {LOCK} and not (folder / LOG).exists())):
        raise InvalidOption(f"{folder} is not a new folder. Give the name of one that does not exist yet.")


def _object(line: bytes) -> dict[str, Any]:
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _difference(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the first field in which two requests differ, for messages; long values are not shown."""
    name = next((name for name in wanted if known.get(name) != wanted[name]), "fields")
    texts = [repr(each.get(name)) for each in (known, wanted)]
    if max(map(len, texts)) > MAX_SHOWN:
        return f"{name} differ"
    return f"{name} is {texts[0]} there and {texts[1]} here"
