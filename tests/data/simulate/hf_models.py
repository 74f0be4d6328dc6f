"""ViT, T5, GPT-2 and Llama of transformers: training steps and generation."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


def train(tag, model, batch):
    model = model.cuda().train()
    opt = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(2):
        out = model(**batch())
        out.loss.backward()
        opt.step()
        opt.zero_grad()
        mem(f"{tag}{step}")
    return model


torch.manual_seed(0)
ids = lambda: torch.randint(1, 500, (4, 48), device="cuda")
train("vit", ViTForImageClassification(ViTConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, image_size=64, num_labels=10)),
      lambda: {"pixel_values": torch.randn(4, 3, 64, 64, device="cuda"), "labels": torch.randint(0, 10, (4,), device="cuda")})
train("t5", T5ForConditionalGeneration(T5Config(vocab_size=500, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0)),
      lambda: {"input_ids": ids(), "labels": ids()})
gpt = train("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=500, n_embd=128, n_layer=2, n_head=4, n_positions=128)), lambda: (lambda i: {"input_ids": i, "labels": i})(ids()))
llama = train("llama", LlamaForCausalLM(LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)),
              lambda: (lambda i: {"input_ids": i, "labels": i})(ids()))
