"""Folders in the style of Hugging Face: `model.safetensors`, `config.json` and a model card made of the report.

The network is the file that a run delivers, so nothing is unpickled and no code is downloaded. Only `push_to_hub`, and
`from_pretrained` with the name of a repository, need the package huggingface_hub and a network connection.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from aacp.artefact.header import Artefact, artefact_path
from aacp.artefact.storage import load
from aacp.disk.reading import read_bytes
from aacp.errors import InvalidOption, MissingFile
from aacp.report.card import model_card
from aacp.report.run import Run, read_run
from aacp.runs.folder import RunFolder
from aacp.runs.trainings import run_of
from aacp.user.values import path_text
from aacp.version import __version__
from aacp.zoo.imports import require_package
from aacp.zoo.trust import MODEL as MODEL_NAME
from aacp.zoo.trust import is_code

MODEL = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"


def save_pretrained(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Write the pruned network of a run to a folder that `from_pretrained` reads and `push_to_hub` uploads.

    Args:
        run: a run folder with one training, or the folder of a training (RUN/trainings/NAME).
        folder: where to write `model.safetensors`, `config.json` and the model card `README.md`.

    Returns:
        The path of the folder.
    """
    source = Path(path_text("run", run))
    if not source.is_dir():
        raise InvalidOption(f"{source} is not a folder of a run. Give the folder that aacp.prune wrote.")
    file = artefact_path(source)
    header = Artefact.read(file)
    known = read_run(run_of(file.parent)).about(file.parent)
    place = RunFolder(path_text("folder", folder))
    place.write_bytes(MODEL, read_bytes(file))
    place.write_json(CONFIG, _config(header, known))
    needs_trust = header.model is not None and is_code(MODEL_NAME, header.model)
    place.write_text(CARD, model_card(known, header.model, needs_trust))
    return place.path


def from_pretrained(
    source: str | os.PathLike[str],
    into: nn.Module | str | None = None,
    *,
    trust: bool = False,
    revision: str | None = None,
) -> nn.Module:
    """Return the pruned network of a folder or of a repository of the Hugging Face Hub, in evaluation mode.

    Args:
        source: a folder that `save_pretrained` wrote, or the name of a repository: "user/name".
        into: a new original network, or its name; None uses the name in the file. See `aacp.load`.
        trust: whether a name `package.module:function` in the file may be imported and called.
        revision: the branch, tag or commit of a repository.
    """
    folder = Path(path_text("source", source))
    if folder.is_dir():
        if revision is not None:
            raise InvalidOption(f"{folder} is a folder, which has no revision {revision}. Leave the revision out.")
        if not (folder / MODEL).exists():
            raise MissingFile(f"{folder} holds no {MODEL}. Give a folder that aacp.save_pretrained wrote.")
        return load(folder / MODEL, into=into, trust=trust)
    hub = _hub()
    return load(hub.hf_hub_download(str(source), MODEL, revision=revision), into=into, trust=trust)


def push_to_hub(folder: str | os.PathLike[str], repository: str, *, private: bool = False) -> str:
    """Upload a folder of `save_pretrained` to the Hugging Face Hub, as the user who is logged in there.

    Args:
        folder: what `save_pretrained` wrote.
        repository: "user/name"; it is created if it does not exist.
        private: whether a new repository is private.

    Returns:
        The address of the commit.
    """
    place = Path(path_text("folder", folder))
    missing = [name for name in (MODEL, CONFIG, CARD) if not (place / name).exists()]
    if missing:
        raise MissingFile(f"{place} holds no {missing[0]}. Write the folder with aacp.save_pretrained first.")
    api = _hub().HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    commit = api.upload_folder(repo_id=repository, folder_path=str(place), allow_patterns=[MODEL, CONFIG, CARD])
    return str(commit)


def _config(header: Artefact, run: Run) -> dict[str, Any]:
    """What a program needs to know of the network without reading its weights."""
    return {
        "library_name": "aacp",
        "aacp": __version__,
        "model": header.model,
        "class": header.graph.model,
        "structure": list(header.structure),
        "example": header.example,
        "evaluation": None if run.evaluation is None else run.evaluation.to_json(),
    }


def _hub() -> ModuleType:
    return require_package("huggingface_hub", "pip install huggingface_hub, or give a local folder")
