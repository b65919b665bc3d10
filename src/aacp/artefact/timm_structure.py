"""timm_structure: the widths of a pruned timm network as the text that timm reads for its pruned models."""

from __future__ import annotations

from torch import nn

from aacp.errors import ExportFailed
from aacp.pytorch.modules import copy_module
from aacp.zoo.imports import require_package

SEPARATOR = "***"


def timm_structure(pruned: nn.Module, original: nn.Module) -> str:
    """The shapes of all weights of a pruned network, as timm writes them: "conv1.weight:[16, 3, 3, 3]***...".

    timm reads such text with `timm.models._prune.adapt_model_from_string`. That function replaces convolutions, batch
    norms and linear layers alone and knows no grouped convolutions, so the text is read back with it and compared.

    Args:
        pruned: the pruned network.
        original: a network as timm created it; it is not changed.
    """
    require_package("timm", "pip install 'aacp[vision]'")
    from timm.models._prune import adapt_model_from_string

    shapes = {name: list(weight.shape) for name, weight in pruned.named_parameters() if name.endswith(".weight")}
    text = SEPARATOR.join(f"{name}:{shape}" for name, shape in shapes.items())
    try:
        adapted = adapt_model_from_string(copy_module(original), text)  # type: ignore[no-untyped-call]
    except Exception as error:  # timm's reader does not check what it does not know
        raise ExportFailed(
            f"timm cannot cut this {type(original).__name__} to the text of its widths: {error!r:.80}. Use aacp.save, "
            "which stores every cut."
        ) from error
    wanted = {name: tuple(tensor.shape) for name, tensor in pruned.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in adapted.state_dict().items()}
    differing = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    if differing:
        name = min(differing)
        raise ExportFailed(
            f"timm reads {name} as {found.get(name)} instead of {wanted.get(name)}, since its text has no grouped "
            "convolutions and no other layers. Use aacp.save, which stores every cut."
        )
    return text
