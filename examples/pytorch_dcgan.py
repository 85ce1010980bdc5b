"""A generator and a discriminator, each with a DistributedOptimizer: DCGAN's loop on small random pictures.

    horovodrun -np 2 python examples/pytorch_dcgan.py
    horovodrun -np 2 python examples/pytorch_dcgan.py --detach no

The discriminator's step has two backward passes, of real and of generated pictures. The generator's loss
passes through the discriminator: skip_extra_backward=True ignores its contribution to the discriminator's
gradients. With --detach no the second pass reaches the generator too; its gradients are zeroed before its own
pass.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import horovod.torch as hvd


def networks() -> tuple[nn.Module, nn.Module]:
    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, stride=2), nn.Tanh()
    )
    critic = nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4), nn.Flatten()
    )
    return generator, critic


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--detach", choices=("yes", "no"), default="yes")
    arguments = parser.parse_args()
    hvd.init()
    torch.manual_seed(0)
    generator, critic = networks()
    of_generator = hvd.DistributedOptimizer(
        torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        named_parameters=generator.named_parameters(prefix="generator"),
        skip_extra_backward=True,
    )
    of_critic = hvd.DistributedOptimizer(
        torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        named_parameters=critic.named_parameters(prefix="critic"),
        backward_passes_per_step=2,
        skip_extra_backward=True,
    )
    loss_of = nn.BCEWithLogitsLoss()
    torch.manual_seed(1 + hvd.rank())
    ones = torch.ones(8)
    for step in range(arguments.steps):
        critic.zero_grad()
        real = torch.rand(8, 1, 10, 10) * 2 - 1
        of_real = loss_of(critic(real).mean(1), ones)
        of_real.backward()
        fake = generator(torch.randn(8, 8, 1, 1))
        shown = fake.detach() if arguments.detach == "yes" else fake
        of_fake = loss_of(critic(shown).mean(1), 1 - ones)
        of_fake.backward(retain_graph=arguments.detach == "no")
        of_critic.step()
        generator.zero_grad()
        if arguments.detach == "no":
            fake = generator(torch.randn(8, 8, 1, 1))
        loss = loss_of(critic(fake).mean(1), ones)
        loss.backward()
        of_generator.step()
        if hvd.rank() == 0 and step % 5 == 0:
            print(f"step {step}: critic {of_real.item() + of_fake.item():.3f}, generator {loss.item():.3f}")
    weights = torch.cat([p.detach().flatten() for net in (generator, critic) for p in net.parameters()])
    everyones = hvd.allgather(weights[None])
    same = torch.equal(everyones, everyones[:1].expand_as(everyones))
    if hvd.rank() == 0:
        print(f"the weights of {hvd.size()} ranks are {'the same' if same else 'different'}")


if __name__ == "__main__":
    main()
