import tempfile
import unittest
from pathlib import Path

import gpudirect


class TestGPUDirect(unittest.TestCase):
    def test_hindrance(self):
        port, peermem = "class/infiniband/mlx5_0/ports/1/state", "module/nvidia_peermem/version"
        old = "kernel/mm/memory_peers/nv_mem/version"
        yes, no_export = {"116": 1, "124": 1}, {"116": 1, "124": 0}
        for name, found, files, want in (
            ("nothing", {}, {}, "no RDMA port is active"),
            ("port down", yes, {port: "1: DOWN\n"}, "no RDMA port is active"),
            ("CUDA is silent", {}, {port: "4: ACTIVE\n", peermem: "580\n"}, "CUDA does not say .*"),
            ("GB10", {"116": 0, "124": 0}, {port: "4: ACTIVE\n"}, "CUDA does not say .*"),
            ("neither", no_export, {port: "4: ACTIVE\n"}, "nvidia-peermem is not loaded, and .*"),
            ("DMA-BUFs", yes, {port: "4: ACTIVE\n"}, ""),
            ("peermem", no_export, {port: "4: ACTIVE\n", peermem: "580\n"}, ""),
            ("the older module", no_export, {port: "4: ACTIVE\n", old: "1.3\n"}, ""),
            ("one of two ports", yes, {port: "1: DOWN\n", port.replace("mlx5_0", "mlx5_1"): "4: ACTIVE\n"}, ""),
        ):
            with self.subTest(name), tempfile.TemporaryDirectory() as root:
                for file, text in files.items():
                    path = Path(root) / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
                self.assertRegex(gpudirect.hindrance(found, root), "^%s$" % want)

    def test_no_cuda(self):
        self.assertEqual({}, gpudirect.attributes("libnosuchcuda.so.1"))


if __name__ == "__main__":
    unittest.main()
