"""Plans in the trainers that people have. Each module imports its framework, and only when it is imported itself.

groups         what all adapters share: groups of samples, and what frameworks ask of them; needs nothing
command        groups from the program `penstock plan`; needs nothing
connection     groups from a planner over penstock.Client; needs gRPC
spans          micro-batches over data and context ranks; needs nothing
megatron       Megatron Core: a BalancedCPScheduler
megatron_dev   the same for the scheduler_map of its development branch
verl           verl: rearrange_micro_batches
torchtitan     torchtitan: a dataset for its ParallelAwareDataloader
hugging_face   transformers' Trainer and TRL: a BatchRebalanceSampler
"""
