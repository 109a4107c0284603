"""What a step costs on this machine, beside the least it can cost and beside what others write."""
