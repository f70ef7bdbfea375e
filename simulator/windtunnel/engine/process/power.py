"""The power budget of the whole fleet, which holds at every instant (process engine)."""

from __future__ import annotations

from collections import deque

from windtunnel.engine.process.stations.base import RunContext, Station


class PowerGate:
    """Admits work only while the fleet stays within its power budget.

    A job or batch reserves its peak power, so the fleet never exceeds the budget. Refused work waits: with a queue for
    each device, the devices wait in order; with a central queue, no other job starts before the first one. If the
    budget falls below the reserved power, the work that started last is paused (at one tick, that of the device with
    the highest number first), and it continues before other work starts.
    """

    def __init__(self, context: RunContext, budget_w: float, drawn_w: float) -> None:
        self.context = context
        self.cap_w = budget_w
        self.drawn_w = drawn_w
        self.refused = False
        """Whether work was refused since this flag was last cleared."""
        self.line: deque[int] = deque()
        self.paused: set[int] = set()
        self._needs: dict[int, float] = {}

    def may_start(self, station: Station, need_w: float) -> bool:
        """Reserve ``need_w`` (W above idle) for the station's next work, and return whether the budget allows it."""
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
        """Return the power that the station's work had reserved, because the work ended or stopped."""
        need_w = self._needs.pop(station.number)
        if station.number in self.paused:
            self.paused.discard(station.number)
        else:
            self.drawn_w -= need_w

    def set_cap(self, cap_w: float) -> None:
        """Change the budget to ``cap_w`` watts, and pause work that exceeds it."""
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
        """Resume paused work, the oldest first, and then start waiting work, as far as the budget allows it."""
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
