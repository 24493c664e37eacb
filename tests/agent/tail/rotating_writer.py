"""A process that writes numbered records to a log and rotates it as the agent does; run by the tests.

python writer.py LOG LAST LINES_A_FILE gzip|plain BATCH PAUSE
"""

import gzip
import os
import shutil
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path


def lines(begin: int, end: int) -> bytes:
    stamp = datetime.now().strftime("%Y%m%d %H:%M:%S.%f")
    each = "[{}][rank-{}/4][INFO]     [------------writer.py:1] : number {}\n"
    return "".join(each.format(stamp, number % 4, number) for number in range(begin, end)).encode()


def pack(path: Path) -> None:
    packed = path.with_name(f".{path.name}.gz.new")
    with open(path, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target)
    os.rename(packed, path.with_name(f"{path.name}.gz"))
    path.unlink()


def main() -> None:
    path, last, size, packing = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "gzip"
    batch, pause = int(sys.argv[5]), float(sys.argv[6])
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp, packers, number = datetime.now(), [], 1
    while number <= last:
        with open(path, "ab", buffering=0) as file:
            for begin in range(number, min(number + size, last + 1), batch):
                end = min(begin + batch, number + size, last + 1)
                file.write(lines(begin, end))
                time.sleep(pause)
        number += size
        if number <= last:
            stamp = max(datetime.now(), stamp + timedelta(microseconds=1))
            rotated = path.with_name(f"{path.stem}.{stamp:%Y-%m-%d_%H-%M-%S_%f}.log")
            os.rename(path, rotated)
            if packing:
                packers.append(threading.Thread(target=pack, args=(rotated,)))
                packers[-1].start()
    for packer in packers:
        packer.join()


main()
