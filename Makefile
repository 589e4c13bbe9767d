# tapswitch: the commands of the README.
#
# `make demo` and `make test` run on a fresh Debian 12 machine with cargo and make: they install
# missing programs from Debian's packages.

SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help demo test soak bench bench-guest build install tidy format clean

help:
	@echo 'make demo     build the release binary and run the demo (as root)'
	@echo 'make test     run all checks and tests (tests that need root are skipped without it)'
	@echo 'make soak     search for defects with random seeds, for half an hour or MINUTES=... (root'
	@echo '              and Open vSwitch for the comparison with it)'
	@echo 'make bench    compare with bare loops, Open vSwitch and tun-rs (as root; minutes);'
	@echo '              BENCH=NAME runs only that one (tap-forward, echo, vlan, vhost, offload,'
	@echo '              lossless, controller) with ARGS=...'
	@echo 'make bench-guest  the part of lossless that needs Linux 7.3, in a guest (an hour; no root)'
	@echo 'make build    build the release binary, target/release/tapswitch'
	@echo 'make install  install the binary to $(PREFIX)/bin'
	@echo 'make format   format the code'
	@echo 'make page     build the web page in the binary (needs Node.js, else left out)'

demo: cargo
	@scripts/install-packages iperf3 tshark ping
	$(CARGO) build --release --locked --package tapswitch
	$(TARGET)/release/tapswitch demo $(ARGS)

test: cargo page
	@scripts/install-packages --optional iperf3 tshark tcpdump ping ip ovs-vswitchd python3-venv \
	  qemu-system-x86_64 busybox valgrind dpdk-testpmd ovs-vswitchd-dpdk chromium curl etcd etcdctl mn \
	  ethtool
	$(CARGO) xtask check

MINUTES ?= 30
soak: cargo
	@scripts/install-packages --optional tcpdump ovs-vswitchd
	$(CARGO) xtask soak --minutes $(MINUTES)

BENCH ?= tap-forward echo vlan vhost offload lossless controller
bench: cargo page
	@scripts/install-packages iperf3 ping tc
	@scripts/install-packages --optional ovs-vswitchd dpdk-testpmd ovs-vswitchd-dpdk
	$(CARGO) build --release --locked --package tapswitch --features peers
	@for bench in $(BENCH); do \
	  set -- bench $$bench $(ARGS); \
	  $(if $(ARGS),,if [ $$bench = echo ]; then set -- "$$@" --svg $(ECHO_SVG); fi;) \
	  $(if $(ARGS),,if [ $$bench = vhost ]; then set -- "$$@" --svg $(VHOST_SVG); fi;) \
	  echo "$(TARGET)/release/tapswitch $$*"; \
	  $(TARGET)/release/tapswitch "$$@" || exit 1; \
	done

# The pictures in docs/benchmarks.md: a file, and a directory for several. With ARGS, which may
# select a part, none are drawn unless ARGS contains --svg.
ECHO_SVG ?= docs/echo.svg
VHOST_SVG ?= docs

# The tables about long paths, on a kernel with IFF_BACKPRESSURE. The processor is emulated, and the
# guest's clock counts its instructions: what it measures is what a processor of a thousand million
# instructions per second does, however slow the emulation is.
# WIREGUARD=FILE also measures that build of wireguard-go
# (go install golang.zx2c4.com/wireguard@latest).
ROUNDS ?= 1
GUEST_MODULES := tun veth bridge vxlan sch_netem sch_tbf
bench-guest: cargo
	@scripts/install-packages tc ip qemu-system-x86_64 busybox
	$(CARGO) build --release --locked --package tapswitch --package tapswitch-guest
	$(TARGET)/release/tapswitch-guest $(GUEST_MODULES:%=--module %) --bin tc --memory 1024 \
	  --cpus 1 --instruction-clock --limit 7200 $(WIREGUARD:%=--file %) \
	  $(TARGET)/release/tapswitch bench lossless --part paper --rounds $(ROUNDS) \
	  $(WIREGUARD:%=--wireguard /root/$(notdir $(WIREGUARD))) $(ARGS)

build: cargo page
	$(CARGO) build --release --locked --package tapswitch

PREFIX ?= /usr/local
install: build
	install -D -m 0755 $(TARGET)/release/tapswitch $(DESTDIR)$(PREFIX)/bin/tapswitch

tidy: cargo
	$(CARGO) xtask tidy

format: cargo
	$(CARGO) fmt --all
	@if [ -d ui/node_modules ]; then cd ui && npm run --silent format; fi

# The controller's page, ui/dist, which build.rs of the controller embeds in the binary.
.PHONY: page
page:
	@scripts/install-packages --optional node npm
	@scripts/build-ui --try

clean:
	$(CARGO) clean

RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: cargo
cargo:
	@command -v $(CARGO) >/dev/null || { \
	  echo 'make: cargo is not installed, or not on the PATH; get Rust $(RUST) or newer by rustup' >&2; \
	  exit 1; }
	@have=$$($(CARGO) --version | cut -d' ' -f2); \
	[ "$$(printf '%s\n' '$(RUST)' "$$have" | sort -V | head -n 1)" = '$(RUST)' ] || { \
	  echo "make: $$(command -v $(CARGO)) is of Rust $$have; get Rust $(RUST) or newer by rustup" >&2; \
	  exit 1; }
