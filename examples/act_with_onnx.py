"""An exported agent without clearl: NumPy, onnxruntime and the environment are all that this program imports."""
# clearl run --preset gym-classic --tasks CartPole-v1 --out runs/cart
# clearl export runs/cart --format onnx --out agent
# python examples/act_with_onnx.py

import json
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime


def main(folder="agent", task="CartPole-v1", episodes=5, sample=False):
    """Play episodes, and print the return of each; with `sample`, draw actions as in training."""
    about = json.loads((Path(folder) / "policy.json").read_text())
    policy = onnxruntime.InferenceSession(Path(folder) / "policy.onnx")
    mask = np.array([about["tasks"][task]["mask"]])
    env, rng = gymnasium.make(task), np.random.default_rng(0)
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        score, done = 0.0, False
        while not done:
            batch = {"observation": observation[None], "mask": mask}  # a batch of one
            (action,), (logits,) = policy.run(["action", "logits"], batch)
            if sample:
                action = np.argmax(logits + rng.gumbel(size=logits.shape))  # from softmax(logits)
            observation, reward, terminated, truncated, _ = env.step(int(action))
            score, done = score + reward, terminated or truncated
        print(f"episode {episode}: return {score:.0f}")


if __name__ == "__main__":
    main()
