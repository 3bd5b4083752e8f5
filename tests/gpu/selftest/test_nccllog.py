import unittest

import nccllog

# As NCCL 2.28 writes it, with what the plugin adds.
LOG = """\
vm:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
vm:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin Mesh (v11)
vm:1:1 [0] NCCL INFO NET/Mesh : port 0: rdma0:1 (p0) RoCE ACTIVE, link 100 Gb/s, MTU 1500, 192.168.1.1 (RoCE v2, GID index 3)
vm:1:1 [0] NCCL INFO Using network Mesh
vm:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 4000 commId 0x1 - Init START
vm:1:1 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 2, bw 3.000000/3.000000, type LOC/PHB, sameChannels 1
vm:1:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 4, bw 6.000000/5.500000, type LOC/PHB, sameChannels 1
vm:1:1 [0] NCCL INFO comm 0x55 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
vm:1:1 [0] NCCL INFO 8 coll channels, 8 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer
vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Mesh/0
vm:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Mesh/0
vm:1:2 [0] NCCL INFO NET/Mesh : a -> b conn 3: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3
vm:1:1 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
vm:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0} cgaClusterSize 1
vm:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo 1 proto 2 time 12.000000
vm:1:3 [0] NCCL INFO NET/Mesh : a -> b conn 3: closed after 168 messages, 786384 bytes, 46 grants waited for
vm:1:3 [0] NCCL INFO NET/Mesh : b -> a conn 3: closed after 2 messages, 16 bytes, 0 grants waited for

vm:1:1 [0] net.cc:12 NCCL WARN NET/Mesh : node b is gone
vm:1:1 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer
"""


class TestLog(unittest.TestCase):
    def test_parse(self):
        want = nccllog.Facts(version="2.28.9+cuda13.0", vtable=11, network="Mesh", nodes=2, channels=8, p2p_channels=4,
                             p2p_channels_per_peer=2, ring_channels=4, ring_speed=5.5, messages=170, bytes=786400,
                             lanes={"a -> b": "lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3"},
                             warnings=["NET/Mesh : node b is gone"])
        want.via["NET/Mesh/0"] = 2
        want.chosen["AllReduce", "RING", "LL"] = 2
        want.chosen["AllGather", "RING", "SIMPLE"] = 1
        got = nccllog.parse(LOG)
        self.assertEqual(want, got)
        self.assertEqual(22.0, got.speed)

    def test_nothing(self):
        self.assertEqual(nccllog.Facts(), nccllog.parse("Traceback\nModuleNotFoundError\n\x00\xff"))
        self.assertIsNone(nccllog.parse("").speed)

    def test_older_speed(self):
        got = nccllog.parse("x NCCL INFO Pattern 4, crossNic 0, nChannels 1, speed 12.0/10.0, type PIX/PXB, sameChannels 1")
        self.assertEqual((1, 10.0), (got.ring_channels, got.ring_speed))

    def test_contradictions(self):
        chosen = nccllog.parse(LOG).chosen
        for algorithm, protocol, want in (
            ("Ring", "LL", ["AllGather: RING SIMPLE"]),
            ("Tree", "Simple", ["AllGather: RING SIMPLE", "AllReduce: RING LL"]),
        ):
            self.assertEqual(want, nccllog.contradictions(chosen, algorithm, protocol))
        self.assertEqual([], nccllog.contradictions({("Send", "RING", "SIMPLE"): 1}, "Tree", "LL"))


if __name__ == "__main__":
    unittest.main()
