// Package gpu runs unmodified NCCL and PyTorch over the plugin, several ranks
// on one GPU. It has no code but Python, which run and README.md explain, and
// the tests of that: the scripts with a stand-in for PyTorch, what make gpu-pack
// packs, and, where there is a GPU, all of it.
package gpu
