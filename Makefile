# Everything a user or developer runs. `make help` lists it.
#
# Runs on a bare Debian 12 with Rust 1.95 or later, as root (namespaces, TAP interfaces, huge pages). Each target
# installs the Debian packages it needs and is safe to run again.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO := cargo
SECONDS_PER_FUZZ_TARGET ?= 300
PAIRS ?= 5
CASES ?= 2500
PREFIX ?= /usr/local
STRIP ?= strip
GENERATOR_FOLDER := $(abspath $(or $(CARGO_TARGET_DIR),target))/generator
SWX_FOLDER := $(abspath $(or $(CARGO_TARGET_DIR),target))/swx
# What is installed: built by `make build`, unless another is named.
BINARY = $(or $(MSWITCH_BIN),target/release/mswitch)
VSWITCHD = $(or $(MSWITCH_VSWITCHD_BIN),target/release/ovs-vswitchd)
# The date in the footers of manual pages: that of the last commit, or of the sources where git is not used.
DATE = $(or $(shell git log -1 --format=%cs 2>/dev/null),$(shell date -u -r Cargo.toml +%F))

BUILD_PACKAGES := build-essential libpcap-dev
LINT_PACKAGES := clang-format
GENERATOR_PACKAGES := libdpdk-dev pkg-config
SWX_PACKAGES := $(GENERATOR_PACKAGES) dpkg-dev xz-utils
DEMO_PACKAGES := iproute2 iputils-ping iperf3
INSTRUCTIONS_PACKAGES := valgrind jq
TEST_PACKAGES := $(DEMO_PACKAGES) $(GENERATOR_PACKAGES) $(INSTRUCTIONS_PACKAGES) tcpdump tshark dpdk-dev ethtool \
  procps nftables systemd openvswitch-common openvswitch-switch openvswitch-testcontroller nfdump curl prometheus groff-base fish zsh qemu-system-x86 busybox-static cpio clang lld rustc libstd-rust-dev-wasm32
VIRTUALIZATION_PACKAGES := libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients podman crun
PACKAGE_PACKAGES := debootstrap groff-base iproute2 iputils-ping systemd strace libcap2-bin
SYSTEMD_PACKAGES := debootstrap systemd-container iproute2 iputils-ping iperf3 jq procps busybox-static
CONTROLLER_PACKAGES := openvswitch-switch python3-venv iproute2 iputils-ping ethtool procps curl
P4_TUTORIALS_PACKAGES := python3-venv iproute2 iputils-ping iperf net-tools ethtool procps
OVS_TESTSUITE_PACKAGES := openvswitch-source openvswitch-switch openvswitch-common openvswitch-pki \
  openvswitch-testcontroller python3 python3-openvswitch bzip2
BENCH_PACKAGES := $(TEST_PACKAGES) openvswitch-switch-dpdk

# Tests that need others' daemons and many packages; `make virtualization` runs them.
VIRTUALIZATION := --features mswitch-e2e/virtualization

# Those that take seconds: traffic, replacing a logic, several bridges, starting and stopping.
CHECK_TESTS := lifecycle logics graph mirror traffic

# install-packages,LIST: installs what of LIST is missing; asks the network only then.
define install-packages
	missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "Installing Debian packages:" $$missing; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## the release binary, target/release/mswitch
	@$(call install-packages,$(BUILD_PACKAGES))
	$(CARGO) build --release --locked -p mswitch

.PHONY: ovs-vswitchd
ovs-vswitchd: ## the daemon in the place of Open vSwitch's, target/release/ovs-vswitchd (docs/open-vswitch.md)
	@$(call install-packages,$(BUILD_PACKAGES))
	$(CARGO) build --release --locked -p mswitch-vswitchd

.PHONY: install
install: $(if $(MSWITCH_BIN),,build) ## program, service, configuration, manual pages, shell completion (DESTDIR, PREFIX)
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/mswitch
	$(if $(STRIP),$(STRIP) $(DESTDIR)$(PREFIX)/bin/mswitch)
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|=/usr/bin/mswitch|=$(PREFIX)/bin/mswitch|' packaging/mswitch.service \
	  >$(DESTDIR)$(PREFIX)/lib/systemd/system/mswitch.service
	install -d $(DESTDIR)/etc/mswitch
	test -e $(DESTDIR)/etc/mswitch/mswitch.toml || install -m 644 packaging/mswitch.toml $(DESTDIR)/etc/mswitch/
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/mswitch*.1.gz
	$(BINARY) man $(DESTDIR)$(PREFIX)/share/man/man1 --date $(DATE)
	gzip -9n $(DESTDIR)$(PREFIX)/share/man/man1/mswitch*.1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/vendor-completions fish/vendor_completions.d)
	$(BINARY) completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mswitch
	$(BINARY) completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/vendor-completions/_mswitch
	$(BINARY) completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mswitch.fish

.PHONY: install-ovs
install-ovs: $(if $(MSWITCH_VSWITCHD_BIN),,ovs-vswitchd) ## the daemon in the place of Open vSwitch's, with its manual page (DESTDIR, PREFIX)
	install -D -m 755 $(VSWITCHD) $(DESTDIR)$(PREFIX)/lib/mswitch/ovs-vswitchd
	$(if $(STRIP),$(STRIP) $(DESTDIR)$(PREFIX)/lib/mswitch/ovs-vswitchd)
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	sed -e 's/@DATE@/$(DATE)/' -e "s/@VERSION@/$$(sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml | head -n 1)/" \
	  packaging/mswitch-ovs-vswitchd.8 | gzip -9n >$(DESTDIR)$(PREFIX)/share/man/man8/mswitch-ovs-vswitchd.8.gz

.PHONY: deb
deb: $(if $(MSWITCH_BIN),,build) $(if $(MSWITCH_VSWITCHD_BIN),,ovs-vswitchd) ## Debian packages, target/mswitch_VERSION_ARCHITECTURE.deb and target/mswitch-ovs_…
	packaging/deb.sh target

.PHONY: package-test
package-test: deb ## the packages in a bare Debian root: installed, run as their services would, removed
	@$(call install-packages,$(PACKAGE_PACKAGES))
	$(if $(MEMIF_CHECK_BIN),,$(CARGO) build --locked -p mswitch-bench)
	packaging/test.sh target/mswitch_*.deb target/mswitch-ovs_*.deb

.PHONY: systemd-test
systemd-test: deb ## the package under systemd in a container: host port with systemd-networkd, restarts, crash, boot, DHCP; Open vSwitch's units
	@$(call install-packages,$(SYSTEMD_PACKAGES))
	packaging/systemd-test.sh target/mswitch_*.deb
	packaging/systemd-ovs-test.sh target/mswitch-ovs_*.deb

.PHONY: demo
demo: ## three namespaces and a memif client on a switch: ping, iperf3, tables
	@$(call install-packages,$(BUILD_PACKAGES) $(DEMO_PACKAGES))
	demo/demo.sh

.PHONY: check
# Not the tests of the benchmarks: they measure what the machine can do, and want it for themselves.
check: ## for those who change a line: format, clippy, unit tests, the fastest end-to-end tests; minutes
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) build --locked --workspace --bins
	$(CARGO) test --locked --workspace --exclude mswitch-e2e --exclude mswitch-bench
	$(CARGO) test --locked --workspace $(addprefix --test ,$(CHECK_TESTS))

.PHONY: test
# Everything is compiled once: what would make the second time faster makes the first one slower.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_DEBUG = 0
test: lint all-tests generator-check after-tests ## everything but the long runs

.PHONY: lint
lint: ## formatting, clippy and documentation, without a warning
	@$(call install-packages,$(BUILD_PACKAGES) $(LINT_PACKAGES))
	$(MAKE) -C bench/generator format
	$(MAKE) -C bench/swx format
	$(CARGO) fmt --all --check
	cd fuzz && $(CARGO) fmt --check
	cd sdk/rust && $(CARGO) fmt --check && $(CARGO) clippy --all-targets --target-dir ../../target/sdk -- -D warnings
	$(CARGO) clippy --workspace --all-targets $(VIRTUALIZATION) --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

.PHONY: unit
unit: ## unit and property tests of every crate
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))
	$(CARGO) test --workspace --exclude mswitch-e2e --locked
	cd sdk/rust && $(CARGO) test --locked --target-dir ../../target/sdk

.PHONY: all-tests
# In one go: parts of the workspace, or programs without tests, have other features of crates, which are compiled again.
all-tests: generator ## unit and end-to-end tests
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))
	$(CARGO) build --locked --workspace --bins --tests
	$(CARGO) test --locked --workspace
	cd sdk/rust && $(CARGO) test --locked --target-dir ../../target/sdk

.PHONY: generator
generator: ## the benchmarks' traffic generator, target/generator/mswitch-generator (docs/benchmarks.md)
	@$(call install-packages,$(BUILD_PACKAGES) $(GENERATOR_PACKAGES))
	$(MAKE) -C bench/generator OUT=$(GENERATOR_FOLDER)

.PHONY: swx
swx: ## DPDK's pipeline for P4 with the router of bench/p4.sh, target/swx (docs/benchmarks.md)
	@$(call install-packages,$(BUILD_PACKAGES) $(SWX_PACKAGES))
	$(MAKE) -C bench/swx OUT=$(SWX_FOLDER)

.PHONY: generator-check
generator-check: ## unit tests of the generator
	@$(call install-packages,$(BUILD_PACKAGES))
	$(MAKE) -C bench/generator OUT=$(GENERATOR_FOLDER) check

.PHONY: loom
loom: ## model checking of reservation, publication, reclamation, doorbells, drains and moving queues
	@$(call install-packages,$(BUILD_PACKAGES))
	RUSTFLAGS="--cfg loom" $(CARGO) test -p mswitch-fabric --locked --target-dir target/loom --lib loom_models

.PHONY: copies
copies: ## payload bytes copied per byte delivered, counted
	@$(call install-packages,$(BUILD_PACKAGES))
	$(CARGO) test -p mswitch-fabric --locked --features count-copies --test copies

.PHONY: instructions
instructions: ## instructions a packet, counted by callgrind, against the record
	@$(call install-packages,$(BUILD_PACKAGES) $(INSTRUCTIONS_PACKAGES))
	bench/instructions.sh

.PHONY: e2e
e2e: generator ## the real daemon with real clients
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES))
	$(CARGO) build --locked --workspace --bins
	$(CARGO) test --locked -p mswitch-e2e

.PHONY: virtualization
virtualization: ## guests of libvirt, also with Open vSwitch's tools, and containers of Podman, as documented
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(VIRTUALIZATION_PACKAGES))
	$(CARGO) build --locked --workspace --bins
	$(CARGO) test --locked -p mswitch-e2e $(VIRTUALIZATION) --test virtualization --test open_vswitch_libvirt

.PHONY: conformance
conformance: ## OpenFlow 1.3 cases of os-ken's switch tester: Open vSwitch, then mswitch; fails below 98 %; an hour
	@$(call install-packages,$(BUILD_PACKAGES) $(CONTROLLER_PACKAGES))
	$(CARGO) build --locked -p mswitch
	tests/conformance/conformance.py run ovs
	status=0; tests/conformance/conformance.py run mswitch --require 98 || status=$$?; \
	  tests/conformance/conformance.py compare mswitch ovs; exit $$status

.PHONY: differential
differential: ## random OpenFlow tables and packets: interpreter, machine code, Open vSwitch; CASES tables of 50 packets
	@$(call install-packages,$(BUILD_PACKAGES) openvswitch-switch)
	$(CARGO) run --locked --release -p mswitch-differential -- --cases $(CASES)

.PHONY: ovs-testsuite
ovs-testsuite: $(if $(OVS_VSWITCHD)$(STOCK),,ovs-vswitchd) ## Open vSwitch's own tests against ovs-vswitchd of mswitch: CASES=ofproto, STOCK=1 (tests/ovs-testsuite)
	@$(call install-packages,$(OVS_TESTSUITE_PACKAGES))
	tests/ovs-testsuite/run.sh $(if $(STOCK),--stock) $(if $(filter command environment,$(origin CASES)),$(CASES),ofproto ofproto-dpif bridge vswitchd learn mcast bfd cfm lacp stp rstp)

.PHONY: ovs-testsuite-short
ovs-testsuite-short: $(if $(OVS_VSWITCHD),,ovs-vswitchd) ## 40 of these cases, which have to pass
	@$(call install-packages,$(OVS_TESTSUITE_PACKAGES))
	tests/ovs-testsuite/run.sh --jobs 6 $$(cat tests/ovs-testsuite/short.txt)

.PHONY: after-tests
# Open vSwitch's cases mostly wait, so others run beside them.
after-tests: all-tests
	$(MAKE) -j2 ovs-testsuite-short loom copies instructions OVS_VSWITCHD=$(CURDIR)/target/debug/ovs-vswitchd

.PHONY: controllers
controllers: ## Ryu's and Faucet's applications drive Open vSwitch, mswitch, and mswitch in its place, with hosts in namespaces; clients of P4Runtime
	@$(call install-packages,$(BUILD_PACKAGES) python3-dev $(CONTROLLER_PACKAGES))
	$(CARGO) build --locked -p mswitch -p mswitch-vswitchd
	tests/controllers/p4runtime.py
	for switch in ovs mswitch mswitch-ovs; do \
	  for script in simple_switch_13 simple_switch_rest_13 rest_router ofctl_rest faucet; do \
	    tests/controllers/$$script.py $$switch; \
	  done; \
	done

.PHONY: p4-tutorials
p4-tutorials: ## the exercises of the P4 tutorials: TUTORIALS names a checkout (tests/p4-tutorials)
	@$(call install-packages,$(BUILD_PACKAGES) $(P4_TUTORIALS_PACKAGES))
	$(CARGO) build --locked -p mswitch
	TUTORIALS=$(TUTORIALS) tests/p4-tutorials/run.py

.PHONY: fuzz-short
fuzz-short: ## replay all corpora with the address sanitizer, and more for 10 s a target
	@$(call install-packages,$(BUILD_PACKAGES))
	fuzz/run.sh 10

.PHONY: fuzz
fuzz: ## 5 minutes a target (SECONDS_PER_FUZZ_TARGET)
	@$(call install-packages,$(BUILD_PACKAGES))
	fuzz/run.sh $(SECONDS_PER_FUZZ_TARGET)
	MSWITCH_GENERATED=$(SECONDS_PER_FUZZ_TARGET) $(CARGO) test --release --locked -p mswitch-modules --test generated -- --nocapture

.PHONY: soak
soak: generator ## the end-to-end tests at full length: 60 s a shape, 1,000 pings, 30 s idle, chaos 30 minutes a seed for three seeds
	@$(call install-packages,$(BUILD_PACKAGES) $(TEST_PACKAGES) $(VIRTUALIZATION_PACKAGES))
	$(CARGO) build --locked --release -p mswitch -p mswitch-bench -p mswitch-http-server -p mswitch-cache-agent
	before=$$(cat /proc/sys/vm/nr_hugepages); trap "echo $$before >/proc/sys/vm/nr_hugepages" EXIT; \
	  echo $$((before + 4)) >/proc/sys/vm/nr_hugepages; \
	  $(CARGO) test --locked -p mswitch-clientmem --test hostile -- --ignored
	MSWITCH_LONG=1 MSWITCH_BIN=$(CURDIR)/target/release/mswitch $(CARGO) test --release --locked -p mswitch-e2e $(VIRTUALIZATION)

.PHONY: bench
bench: generator swx ## against the floor, Open vSwitch with DPDK and DPDK's pipeline for P4, interleaved (PAIRS); idle cost
	@$(call install-packages,$(BUILD_PACKAGES) $(BENCH_PACKAGES))
	$(CARGO) build --locked --release -p mswitch -p mswitch-bench -p mswitch-p4-client -p mswitch-instructions
	bench/floor.sh --rounds 9
	bench/floor.sh --rounds 9 --burst 8
	bench/pairs.sh --pairs $(PAIRS)
	bench/pairs.sh --pairs $(PAIRS) --ports vhost-user --only static
	bench/pairs.sh --pairs $(PAIRS) --ports vhost-user --only static --size 1518
	bench/interfaces.sh
	bench/pairs.sh --pairs $(PAIRS) --ports vhost-user --only static --load segments
	bench/logics.sh --rounds $(PAIRS)
	bench/queueing.sh --rounds $(PAIRS)
	bench/shaper.sh
	bench/hostile.sh --rounds $(PAIRS)
	bench/p4.sh --rounds $(PAIRS)
	bench/p4-writes.sh --rounds $(PAIRS)
	$(CARGO) bench --locked -p mswitch-fabric --features fuzzing --bench dispatch
	bench/idle.sh

.PHONY: docs
docs: ## regenerate docs/configuration.md and docs/drops.md
	$(CARGO) run --locked --quiet -p mswitch -- config reference >docs/configuration.md
	$(CARGO) run --locked --quiet -p mswitch -- port reasons --markdown >docs/drops.md

.PHONY: picture
picture: ## regenerate docs/top.svg: `mswitch top` while the demo runs
	@$(call install-packages,$(BUILD_PACKAGES) $(DEMO_PACKAGES) bsdutils)
	$(CARGO) build --locked -p mswitch-e2e --bin terminal-svg
	DEMO_PICTURE=docs/top.svg TERMINAL_SVG=$(or $(CARGO_TARGET_DIR),target)/debug/terminal-svg demo/demo.sh

.PHONY: clean
clean: ## remove build outputs
	$(CARGO) clean
	$(MAKE) -C bench/generator OUT=$(GENERATOR_FOLDER) clean
	rm -rf fuzz/target
