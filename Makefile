# Builds, tests and shows the plugin. `make help` lists the targets.
BUILD  ?= build
GO     ?= go
LANES  ?= tcp
NODES  ?= 3
CROSS  ?= aarch64-linux-gnu-
name   := libnccl-net-mesh.so
NAME   ?= 1.0-dev$(addprefix +g,$(shell git -C $(CURDIR) describe --always --dirty --abbrev=7 --exclude='*' 2>/dev/null))
onesided := libncclmesh.so# the library for programs that do not use NCCL
# The same source and NAME, which logs and refusals give, make the same bytes wherever they are built. $(1) is the package, $(2) the name.
shared = $(GO) build -buildmode=c-shared -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X ncclmesh/handshake.build=$(NAME) -extldflags \
	'-Wl,--version-script=$(CURDIR)/$(1)/exports.map -Wl,-soname,$(2) -Wl,-z,now -Wl,--build-id=none'"
command = CGO_ENABLED=0 $(GO) -C tools build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X ncclmesh/handshake.build=$(NAME)"
warnings = -std=gnu11 -O2 -Wall -Wextra -Wpedantic -Werror -fsyntax-only
need    = @tools/need # program-or-file:package ...: installs what is missing if it may, else says how
headers = /usr/include/infiniband/verbs.h:libibverbs-dev
archive = /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
cross   = $(CROSS)gcc:gcc-aarch64-linux-gnu /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross
testing = gcc:gcc make:make ip:iproute2 git:git python3:python3 ib_write_bw:perftest ibv_devinfo:ibverbs-utils \
	qemu-aarch64-static:qemu-user-static rpm:rpm netplan:netplan.io $(headers) $(cross) $(archive)

all = $(shell $(GO) list ./...)
# Packages whose tests are simulations: one goroutine follows another there, so that the race detector would see nothing in them.
simulated = $(filter-out ncclmesh/tests/%,$(shell $(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | \
	sed -n 's#^\([^ ]*\) .*ncclmesh/tests/\(sim\|transporttest\).*#\1#p'))
long = $(addprefix ncclmesh/,tests/sim/mesh tests/e2e tests/nccl tests/packages transport/conn) # begin first, so that none runs alone in the end
# Packages of tools that start goroutines: the race detector sees nothing in the others.
concurrent = $(shell grep -rlE --include='*.go' --exclude='*_test.go' '^\s*go |\.Go\b' tools | xargs -n1 dirname | sort -u | sed 's#^#ncclmesh/#')
made = build ncclmesh netdriver fakeverbs fakecuda# what several of the tests need is made once
tested = -shuffle=on -count=1 -timeout 2h -vet=off# vet is part of `make check`
comma = ,
space = $() $()

.PHONY: build ncclmesh arm64 library library-arm64 packages dist generate test test-mesh test-parts soak check lab nccl demo bench bench-ibv netdriver fakeverbs fakecuda gpu-pack deps clean name help

build: ## the plugin for this machine, build/libnccl-net-mesh.so (the default)
	$(need) gcc:gcc
	$(call shared,capi,$(name)) -o $(BUILD)/$(name) ./capi
	@rm -f $(BUILD)/$(name:.so=.h) && ln -sf $(name) $(BUILD)/libnccl-net.so
ncclmesh: ## the command, build/ncclmesh, which relays for others on nodes that run no rank
	$(command) -o $(abspath $(BUILD))/ncclmesh ./ncclmesh
arm64: ## the plugin and the command for arm64 (Grace, GB10), in build/arm64
	$(need) $(cross)
	GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=$(CROSS)gcc $(call shared,capi,$(name)) -o $(BUILD)/arm64/$(name) ./capi
	@rm -f $(BUILD)/arm64/$(name:.so=.h) && ln -sf $(name) $(BUILD)/arm64/libnccl-net.so
	GOOS=linux GOARCH=arm64 $(command) -o $(abspath $(BUILD))/arm64/ncclmesh ./ncclmesh
library: ## libncclmesh.so for programs that do not use NCCL, with ncclmesh.h and ncclmesh.py, in build
	$(need) gcc:gcc
	$(call shared,capi/library,$(onesided)) -o $(BUILD)/$(onesided) ./capi/library
	@rm -f $(BUILD)/$(onesided:.so=.h) && cp capi/library/ncclmesh.h capi/library/ncclmesh.py $(BUILD)
library-arm64: ## libncclmesh.so, ncclmesh.h and ncclmesh.py for arm64 (Grace, GB10), in build/arm64
	$(need) $(cross)
	GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=$(CROSS)gcc $(call shared,capi/library,$(onesided)) -o $(BUILD)/arm64/$(onesided) ./capi/library
	@rm -f $(BUILD)/arm64/$(onesided:.so=.h) && cp capi/library/ncclmesh.h capi/library/ncclmesh.py $(BUILD)/arm64
packages: build ncclmesh arm64 library library-arm64 ## .deb, .rpm and .tar.gz of plugin, command and library, for this machine and for arm64, in build/packages
	@GO=$(GO) tools/packages/pack $(BUILD) $(NAME) $(shell $(GO) env GOARCH):$(BUILD) arm64:$(BUILD)/arm64
dist: packages ## one file to copy: those packages and a script that installs the right ones, build/ncclmesh-<version>.tar
	@tools/packages/dist $(BUILD)
generate: ## write the generated files again
	$(need) gcc:gcc $(headers) $(cross)
	$(GO) generate ./...

test: export MESH_TEST_MADE = $(subst $(space),$(comma),$(made)),FAKE=all old
test: ## all tests that need no virtual machine and no GPU, of which FULL=1 leaves nothing out; installs what they need
	$(need) $(testing)
	@$(MAKE) --no-print-directory BUILD=$(CURDIR)/build/shared $(made) 'FAKE=all old'
	@$(MAKE) --no-print-directory -j2 test-mesh test-parts
test-mesh: # what takes long and waits for processes of its own
	$(GO) test -p 3 $(tested) $(long) $(filter-out $(long) ncclmesh/tests/datapath,$(simulated) $(filter ncclmesh/tests/%,$(all)))
test-parts: # beside it, so that no processor rests
	$(GO) test -race $(tested) $(filter-out $(simulated) ncclmesh/tests/%,$(all)) ncclmesh/tests/datapath
	$(GO) -C tools test -race $(tested) $(concurrent)
	$(GO) -C tools test $(tested) $(filter-out $(concurrent),$(shell $(GO) -C tools list ./...))
soak: ## a million messages; 10^5 while cables fail in every way, over RDMA and TCP
	$(need) $(testing)
	FULL=1 MESH_TEST_REQUIRE=fake,netns $(GO) test -v -count=1 -timeout 2h -run 'Failover|Soak' ./tests/e2e
check: ## formatting, vet, staticcheck, C warnings, and that generated files are up to date
	$(need) $(testing)
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt -w $$unformatted" >&2; exit 1; }
	$(GO) vet ./... && $(GO) -C tools vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $(addprefix ./,$(sort $(dir $(shell git ls-files '*_arm64*')))) # all that differs there; tests/rules builds the whole
	staticcheck=$$($(GO) -C tools tool -n staticcheck) && $$staticcheck ./... && cd tools && $$staticcheck ./...
	$(GO) mod tidy -diff && $(GO) -C tools mod tidy -diff && $(GO) -C tools/packages mod tidy -diff
	gcc $(warnings) capi/*.c capi/*/*.c && $(CROSS)gcc $(warnings) capi/*.c capi/*/*.c
	$(MAKE) generate && git diff --exit-code
lab: build netdriver ## the tests in virtual machines with the kernel's own RDMA driver, cabled as a triangle; FULL=1 for all vtables, the command, and a ring of four
	FULL=$(FULL) MESH_TEST_LAB=1 MESH_TEST_REQUIRE=lab $(GO) test -v -count=1 -timeout 40m ./tests/lab
nccl: ## eight jobs under unmodified NCCL, without a GPU; FULL=1 for all versions, meshes, sizes and types
	$(need) gcc:gcc make:make ip:iproute2 $(headers) $(archive)
	FULL=$(FULL) MESH_TEST_REQUIRE=nccl,fake,netns $(GO) test -v -count=1 -timeout 90m ./tests/nccl
demo: build netdriver $(if $(filter lab,$(LANES)),,fakeverbs) ## three nodes, three cables, an all-reduce: LANES=tcp, fake, nccl (unmodified NCCL), or lab in virtual machines; NODES=4 and more are a ring
	$(GO) run $(if $(filter lab,$(LANES)),./tests/lab/cmd/lab demo,./tests/fabric/cmd/demo --build $(BUILD) --lanes $(LANES) --nodes $(NODES))

bench-ibv: fakeverbs ## time a verbs call from Go beside one from C
	@mkdir -p $(BUILD)/bench && gcc -O2 -Wall -Wextra -Werror -o $(BUILD)/bench/ibv-loop tools/benchibv/loop/loop.c -libverbs
	$(GO) -C tools build -o $(abspath $(BUILD))/bench/ ./benchibv
	cd $(BUILD) && fakeverbs/fakenet run -n a $(CURDIR)/tests/fakeverbs/triangle.txt $$PWD/bench/benchibv --loop $$PWD/bench/ibv-loop
bench: build library netdriver fakeverbs ## measure the plugin beside C loops that do the same, and iperf3, or with BASE=commit beside that one's; BENCH="--help" lists options
	$(need) iperf3:iperf3
	$(MAKE) -C tests/bench BUILD=$(abspath $(BUILD))
	$(GO) -C tools build -o $(abspath $(BUILD))/bench/ ./bench
	$(BUILD)/bench/bench --build $(BUILD) $(if $(BASE),--base '$(BASE)') $(BENCH)

netdriver: ## the program that stands in for NCCL, build/netdriver
	$(need) gcc:gcc make:make
	$(MAKE) -C tests/netdriver BUILD=$(abspath $(BUILD))
fakeverbs: ## the libibverbs that needs no hardware, build/fakeverbs
	$(need) gcc:gcc make:make $(headers)
	$(MAKE) -C tests/fakeverbs OUT=$(abspath $(BUILD))/fakeverbs $(FAKE)
fakecuda: ## the libcuda that needs no GPU, build/fakecuda
	$(need) gcc:gcc make:make
	$(MAKE) -C tests/fakecuda OUT=$(abspath $(BUILD))/fakecuda
gpu-pack: build ncclmesh netdriver fakeverbs ## the tests for a machine with a GPU, build/ncclmesh-<arch>.tar.gz
	$(need) strip:binutils
	@tests/gpu/pack $(BUILD)

deps: ## install what all targets need
	$(need) $(testing) qemu-system-x86_64:qemu-system-x86
clean: ## remove what was built
	rm -rf $(BUILD)
name: ; @echo $(NAME)
help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18
