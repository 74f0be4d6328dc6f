"""Hugging Face's Trainer on a small language model."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(0, 2000, (128,))
        return {"input_ids": tokens, "labels": tokens.clone()}


class Memory(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print("MEM", f"step{state.global_step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


config = LlamaConfig(vocab_size=2000, hidden_size=256, intermediate_size=688, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4)
model = LlamaForCausalLM(config)
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=3, bf16=True, report_to=[], save_strategy="no",
    logging_steps=1, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, dataloader_num_workers=0, disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=Data(), callbacks=[Memory()]).train()
