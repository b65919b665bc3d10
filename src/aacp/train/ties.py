"""Ties: what others know of a module, who would miss it if something else took its place."""

from __future__ import annotations

from torch import nn


def is_tied_to_others(module: nn.Module) -> bool:
    """Whether something from outside would not be there in a copy, or would not know it."""
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]
    for parameter in module.parameters(recurse=False):
        hooks += [parameter._backward_hooks or {}, getattr(parameter, "_post_accumulate_grad_hooks", None) or {}]
    return any(hooks) or is_compiled(module)


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile has made something of a module, which would be made anew for another."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")
