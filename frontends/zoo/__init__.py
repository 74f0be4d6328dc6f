"""Models by name: `torchvision:resnet50`, `timm:vit_base_patch16_224`, `transformers:gpt2`. Configurations only, nothing is downloaded."""
