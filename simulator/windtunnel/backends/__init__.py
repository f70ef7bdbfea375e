"""Back ends of real devices, a folder each. Only these packages import a driver.

``common`` holds what the back ends share and ``discovery`` finds them and their devices. Every other folder is a back
end: its module ``backend`` has ``BACKEND``, a `common.backend.RealBackend`.
"""
