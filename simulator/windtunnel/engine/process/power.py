"""A budget of power that the whole fleet keeps to at every instant (process engine)."""

from __future__ import annotations

from collections import deque

from windtunnel.engine.process.stations.base import RunContext, Station


class PowerGate:
    """Lets work start only while the fleet keeps within its budget.

    A job or batch is let through with the most it will draw at any time, so the fleet never exceeds the budget, and may
    stay below it. What is refused waits: with a queue for each device the devices stand in a line, and nothing
    overtakes; with one queue for all, nothing else starts until what comes first can. When the budget falls below
    what is drawn, what was started last is paused (of those of one tick, the device of highest number first), and
    goes on before anything else starts.
    """

    def __init__(self, context: RunContext, budget_w: float, drawn_w: float) -> None:
        self.context = context
        self.cap_w = budget_w
        self.drawn_w = drawn_w
        self.refused = False
        """Whether something was refused since this was last reset."""
        self.line: deque[int] = deque()
        self.paused: set[int] = set()
        self._needs: dict[int, float] = {}

    def may_start(self, station: Station, need_w: float) -> bool:
        """Whether the station may start what draws ``need_w`` above idle at most; if so, it is taken to be drawn."""
        in_turn = not self.line or self.line[0] == station.number
        if not self.paused and in_turn and self.drawn_w + need_w <= self.cap_w:
            self.drawn_w += need_w
            self._needs[station.number] = need_w
            return True
        self.refused = True
        if self.context.dispatcher.follows_load and station.number not in self.line:
            self.line.append(station.number)
        return False

    def release(self, station: Station) -> None:
        """The station's work has ended or stopped: its watts are free."""
        need_w = self._needs.pop(station.number)
        if station.number in self.paused:
            self.paused.discard(station.number)
        else:
            self.drawn_w -= need_w

    def set_cap(self, cap_w: float) -> None:
        """The budget is now ``cap_w``."""
        self.cap_w = cap_w
        while self.drawn_w > self.cap_w:
            running = [s for s in self.context.stations if s.number in self._needs and s.number not in self.paused]
            if not running:
                break
            latest = max(running, key=lambda s: (s.began, s.number))
            latest.pause()
            self.paused.add(latest.number)
            self.drawn_w -= self._needs[latest.number]
        self.drain()

    def drain(self) -> None:
        """Power may have become free: paused work goes on, oldest first; then what waits for power starts."""
        dispatcher, stations = self.context.dispatcher, self.context.stations
        while self.paused:
            oldest = min((stations[number] for number in self.paused), key=lambda s: (s.began, s.number))
            need_w = self._needs[oldest.number]
            if self.drawn_w + need_w > self.cap_w:
                return
            self.drawn_w += need_w
            self.paused.discard(oldest.number)
            oldest.resume()
        if not dispatcher.follows_load:
            dispatcher.offer()
            return
        while self.line:
            station = stations[self.line[0]]
            if station.has_room():
                self.refused = False
                dispatcher.feed(station)
                if self.refused:
                    return
            self.line.popleft()
