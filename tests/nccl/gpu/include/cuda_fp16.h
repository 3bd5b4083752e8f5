// Empty: the types of half precision are NCCL's to name, not to use.
