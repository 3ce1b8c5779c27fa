"""Training logs with timings: text of Megatron-LM, DeepSpeed and NeMo, Primus' pipeline times."""
