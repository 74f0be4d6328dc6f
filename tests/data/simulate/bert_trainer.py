"""BERT for classification with Trainer: accumulation, checkpointing, bf16, evaluation."""
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Sentences(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return {"input_ids": torch.randint(0, 1000, (64,)), "attention_mask": torch.ones(64, dtype=torch.long), "labels": i % 3}


class Memory(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        mem(f"step{state.global_step}")

    def on_evaluate(self, args, state, control, **kwargs):
        mem(f"evaluated{state.global_step}")


config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256, num_labels=3)
for options in ({"bf16": True, "gradient_accumulation_steps": 2}, {"gradient_checkpointing": True, "optim": "adamw_torch_fused", "max_grad_norm": 0.5},
                {"fp16": True, "optim": "adafactor"}, {"optim": "sgd", "label_smoothing_factor": 0.1}):
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, max_steps=3, per_device_train_batch_size=4, eval_strategy="steps", eval_steps=2, save_strategy="no", report_to=[],
                                 disable_tqdm=True, logging_steps=1, **options)
        Trainer(model, args, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=[Memory()]).train()
    del model
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
