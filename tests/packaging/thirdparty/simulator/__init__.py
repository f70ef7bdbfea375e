"""This project's own simulator: the rod in plain Python."""


def rod(temperatures, steps):
    """Temperatures after so many steps."""
    now = [float(value) for value in temperatures]
    for _ in range(steps):
        inner = [(now[i - 1] + 2 * now[i] + now[i + 1]) / 4 for i in range(1, len(now) - 1)]
        now = [now[0], *inner, now[-1]]
    return now
