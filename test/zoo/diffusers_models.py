# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of diffusers: the noise in an image at a time is what they are to tell."""

from __future__ import annotations

import diffusers
import torch
from subject import ROWS, Subject, images, stirred
from torch import nn
from torch.nn import functional as F


class _Target(nn.Module):
    """The mean square over a model's `.sample`."""

    def forward(self, output, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output.sample, target)


def _denoiser(model: nn.Module, channels: int, **conditions: torch.Tensor) -> Subject:
    image = images(size=8, channels=channels)
    inputs = dict(hidden_states=image, timestep=torch.randint(0, 1000, (ROWS,)), **conditions)
    if isinstance(model, (diffusers.UNet2DModel, diffusers.UNet2DConditionModel)):
        inputs["sample"] = inputs.pop("hidden_states")
    batch = dict(kwargs=inputs, target=images(size=8, channels=channels))
    return Subject(stirred(model).train(), batch, _Target())


def unet() -> Subject:
    """Down and up again, with attention on the smaller image."""
    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8, add_attention=True,
    )  # fmt: skip
    return _denoiser(model, 3)


def unet_condition() -> Subject:
    """The same with attention to a text."""
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8, cross_attention_dim=16,
    )  # fmt: skip
    return _denoiser(model, 3, encoder_hidden_states=torch.randn(ROWS, 5, 16))


def dit() -> Subject:
    """A transformer over patches, normalized by time and class."""
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=3, out_channels=3, num_layers=2, sample_size=8, patch_size=2,
        norm_num_groups=4, num_embeds_ada_norm=10, dropout=0.0,
    )  # fmt: skip
    for module in model.modules():
        # Classes are left out at random in training.
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    return _denoiser(model, 3, class_labels=torch.randint(0, 10, (ROWS,)))


def pixart() -> Subject:
    """The same with attention to a text."""
    model = diffusers.PixArtTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=3, out_channels=3, num_layers=2, sample_size=8, patch_size=2,
        norm_num_groups=4, cross_attention_dim=32, caption_channels=16, dropout=0.0, use_additional_conditions=False,
    )  # fmt: skip
    return _denoiser(model, 3, encoder_hidden_states=torch.randn(ROWS, 5, 16))


MODELS = [unet, unet_condition, dit, pixart]
