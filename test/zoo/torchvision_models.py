# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torchvision; the loss is cross entropy. A BatchNorm normalizes each microbatch by itself."""

from __future__ import annotations

import torchvision.models as tv
from subject import ROWS, Subject, classes, images, stirred
from torch import nn
from torch.nn import functional as F

#: A BatchNorm needs more than one number for each channel, and deep in the network an image is one.
_MANY = 4 * ROWS


def _classifier(
    model: nn.Module, rows: int = ROWS, size: int = 16, coupled: bool = False, double: bool = False
) -> Subject:
    return Subject(stirred(model).train(), (images(rows, size), classes(rows)), F.cross_entropy, coupled, double)


def resnet18() -> Subject:
    """Residual blocks with BatchNorm, its layers as wide as published."""
    return _classifier(tv.resnet18(num_classes=5), _MANY, 32, coupled=True, double=True)


def tv_vit() -> Subject:
    """nn.MultiheadAttention over patches."""
    model = tv.VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=5
    )
    return _classifier(model)


def tv_swin() -> Subject:
    """Windows that are shifted by rolling."""
    return _classifier(
        tv.SwinTransformer(
            patch_size=[2, 2], embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4],
            stochastic_depth_prob=0.0, num_classes=5,
        )
    )  # fmt: skip


def mobilenet_v3() -> Subject:
    """Squeeze and excitation, hard swish, BatchNorm."""
    model = tv.mobilenet_v3_small(num_classes=5, width_mult=0.25, dropout=0.0)
    # Of smaller images the last layers normalize one position, which rounding alone decides.
    return _classifier(model, _MANY, 64, coupled=True)


def efficientnet() -> Subject:
    """Inverted residuals of two sizes, BatchNorm."""
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    setting = [MBConvConfig(1, 3, 1, 16, 8, 1, 1.0, 1.0), MBConvConfig(4, 3, 2, 8, 16, 2, 1.0, 1.0)]
    model = EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=5, last_channel=32)
    return _classifier(model, _MANY, 16, coupled=True)


def tv_convnext() -> Subject:
    """Convolutions of each channel, layers scaled by a parameter."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    model = ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], layer_scale=1.0, num_classes=5)
    return _classifier(model)


def squeezenet() -> Subject:
    """Convolutions alone, whose outputs are put side by side."""
    model = tv.squeezenet1_1(num_classes=5, dropout=0.0)
    return _classifier(model, size=32)


MODELS = [resnet18, tv_vit, tv_swin, mobilenet_v3, efficientnet, tv_convnext, squeezenet]
