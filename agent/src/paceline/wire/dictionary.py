"""Bytes that a compressed frame may refer to without sending them (docs/wire.md).

They are the content of a small frame, and before it the rarer keys and the names of telemetry. Half
of a small frame is such bytes. They are frozen: other bytes are another compression number.
"""

from __future__ import annotations

import base64
import zlib

_PACKED = (
    "eNqdVstvHDUY9yZt1UMPVS9wLAgkhNiyefQBXPhPLK/Hu+uuxx5sTzZboapUwIke2kgUECeyr6SbZJukLVQpRU3UA1Lp"
    "ORckblw4ciV89uzMzk4jDvjgsX/fYz5/L/uzNcsEC5nV7dt3XqLZW9c7z2+g31HYq0cxrrbRwH3jmAfJSpKQob5bRZSj"
    "NbfgMmDLaDXkdTSAKWG+Z0JMhaJN3LiGhiHL7bZCsozz5JEDplhGtqGVtYJhzYhR0qCfM8S0cKRaTGNKIiwNtsoSgfYm"
    "9LakuKqUsRPq4dt5cdtgOiQCG6FagWrJY/ka/8l3Ps+XmFPVpMkmLBuWhRHTxMaaYYruu/NNQ/1EroU2koXgIbew3fSe"
    "j00bAytXaNvtnfhxWGxYAGGyzKCNjM9vdxilmCqtGbXAk1j1wIGxLMJPNQtJFMFeq5ZJpUgVzjc+8BvTHJmKHM+DaZaI"
    "yYDLehGuES7g/Ek2CYgSGsqlEJxsY4i9QVuQVwzXmWT+pBLtuOwogiMPtHhgG1gQCcfdzdjy6LZHNIsEaaeR2ZRLgsum"
    "wYRavsTc/5O9izHaS3aYaoprAgLCtFY6lX08piYap2l7GY2qJaYL1NVlqIo+TL5wkoWrE7/QijJj0MBtLFu2qGssoU20"
    "qwkoVBJTV3qpqkce1bHEn8QsZkVCSK4qDX6OhU0JT2hdqzjyatLMDXLp/OaxdMhVroKU6WGOJ0lVSAFwcce4kw1MerQ1"
    "k51i3UfWuwFtOjnIVj3O4JHbm7aBmsgjXLUIqE6QLc9jGdRgAqwLRUA3MU0IbUIkQoDaNAUh/RV4vgDf56oIPR5z1mIh"
    "irSHwH4cPhzLJPX1cLwjS5DRvgzGdWda0Ji4xBGps1R014MqtlPollIhbnIhUmAU8iTWWSeEvkEK0CO/A99noUrP5AgR"
    "5A38okjblpxivZzYmMfsNLYz5pvK3Z0x4xS4O+YMtPLVnUNtEf3JoZRozV3fbhA58UHPkeIoETQRc+2MW9c+NHSD+7xa"
    "tNpBBaO7AIGKAXwgZJahbScGi7yqUYoFrK5JwALPtex7rku5NPagox1WlSicFnBf3a5JZOfaS1HPO6n8sX8T41/R49zD"
    "Dbgjq63Dt5wiRSHRvTouLRjJbaGH/AhcLodUDRsGtS9pGt6nQHGRZ3ZCmRJ9AAxAx5aHDFTkNWqp4Vp3fctCfPJupjIC"
    "ddLmbHcQxC8QmQ92AGVUQtvRzQx84n4XkMg1WK+YSBNym7eGh5HgrguRZgrDy2OTSNoAV7Zc5Unz8rW73/9z6V2Eht6O"
    "AnqyA80hqvTHV83tuyX04tx+5eg3dBah7DHTH+fizZEGJuwi1ALfWiZflN5bN5GCWLtyh10XFLGgB6UG12qHy5q62bVK"
    "00Zv/sLcwoVKv+p8LIOOpFRsUyWtBuHJvVQappgzDBQO4f0S4FBJ5cxOLdqmDUabkYIwv0L7HZ1bvaqqXXAZlz3X5HnQ"
    "hU95rk+se0BY1HFtvrTeUloE2PBr7MUJdI9LSCjprTg8X5mbX1i8eOnylQ9IlQasVtyv1TS841yqgI0dqQLWc1N5bgBX"
    "URBTpntR2zaU7FIVS3uqT5WIQ2m+6jThtbdSenZwqjQDY7ZDQSzZl2ZmT6CuvyM8gPxYhX+szOwfnPnlY7c995ebfdhW"
    "SvsHpyqeqQNlr73QkR8bEWn7Tu+LfOXEs4PXUW6cza0HUPDavfRWTu8fJNrQjT9gfPr8bxjvdE7C+PO6g49u+XnWz57x"
    "aAixxKRmoUHI5D/iBgz07dcwfj39DYzvPOdHG1chWhPWmWcHZz73ts76eYsbAzdxldVcXwYG7wFP6tYEqZucS3reR+bO"
    "F93k5dxxb+p1iIq7sXFU77rwml6lPFeZXxiEzDSgXYQ/BNFU9n2ZSJeOl16tlC93WaRoozTRYCca6kKp9aTh+GQaJrdL"
    "oELIusP303wpu4QpL0LKlK9AEpXzWfThYmX+0sWFuSsLi2nRFnP5/xTzvwd7FkY="
)
DICTIONARY = zlib.decompress(base64.b64decode(_PACKED))
