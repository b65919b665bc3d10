"""The text of a pruned timm network, read back by timm's own function."""

from __future__ import annotations

import pytest
import torch

import aacp


def cut(name: str, size: int = 32) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An original network of timm, and one of the same weights whose free groups keep half of their channels."""
    torch.manual_seed(0)
    original = aacp.build_model(f"timm:{name}").eval()
    graph = aacp.trace(original, torch.randn(1, 3, size, size))
    return original, aacp.shrink(original, graph, [(group.width + 1) // 2 for group in graph.free])


@pytest.mark.slow
def test_timm_builds_the_same_network_from_the_text() -> None:
    original, pruned = cut("test_resnet")
    text = aacp.timm_structure(pruned, original)
    from timm.models._prune import adapt_model_from_string

    again = adapt_model_from_string(aacp.build_model("timm:test_resnet"), text)
    again.load_state_dict(pruned.state_dict())
    example = torch.randn(2, 3, 32, 32)
    assert torch.equal(again.eval()(example), pruned.eval()(example))
    assert sum(weight.numel() for weight in again.parameters()) < sum(
        weight.numel() for weight in original.parameters()
    )


@pytest.mark.slow
def test_what_timm_cannot_read_is_rejected() -> None:
    original, pruned = cut("test_convnext")
    with pytest.raises(aacp.ExportFailed, match=r"timm .* Use aacp.save, which stores every cut\."):
        aacp.timm_structure(pruned, original)
