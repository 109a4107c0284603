"""A plain training run as a process of its own: `python -m nlq.bench._alone ORDER STEPS` trains and prints the loss."""

import sys

from nlq.bench._one import order_from
from nlq.bench.contenders import contender


def main() -> None:
    """Build, take the steps, read every loss."""
    made = contender(order_from(sys.argv[1]))
    losses = [float(made.works["train"](step)) for step in range(int(sys.argv[2]))]
    print(f"{losses[0]:.4f} nats at first, {losses[-1]:.4f} at the end")


if __name__ == "__main__":
    main()
