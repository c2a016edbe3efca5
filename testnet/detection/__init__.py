"""The failure detector at any size: thousands of real Detectors in one process, in virtual time,
over a simulated network that delays and loses, on machines that may be starved of processor."""
