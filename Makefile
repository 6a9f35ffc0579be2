# SPDX-License-Identifier: GPL-2.0-or-later
#
# dm-hybrid: a device-mapper block cache.  "make help" lists the targets.  It takes each description
# from the comment beside the rule, after "##".
#
# Modules are built from copies under build/, one for each kernel: the sources stay
# clean, and builds for different kernels never mix.

include version.mk

prefix ?= /usr/local
DESTDIR ?=
DEBIAN_HEADERS := $(lastword $(sort $(wildcard /usr/src/linux-headers-6.1.*-amd64)))
KDIR ?= $(firstword $(wildcard /lib/modules/$(shell uname -r)/build) $(DEBIAN_HEADERS))
# Debian's own python3: "make deps" installs pytest for it.
PYTHON ?= /usr/bin/python3
PYTEST_ARGS ?=
TESTS = tests
# The guest kernel: uml, or a kernel with checkers that tests/guest/build-kernel builds.
GUEST ?= uml
# The directories of its modules under build/: modules-$(STAGE), guest-$(STAGE).
STAGE ?= $(GUEST)
export prefix DESTDIR

# $(call each,<target>): makes <target> in every part
each = +@for f in $(PARTS); do $(MAKE) -C $$(dirname $$f) -f $$(basename $$f) $(1) || exit 1; done

DEPS := build-essential bc bison flex libelf-dev xz-utils kmod patch pkg-config rsync \
	linux-source-6.1 linux-headers-amd64 sparse clang libclang-rt-14-dev \
	libdevmapper-dev libblkid-dev libfdisk-dev libmount-dev libudev-dev libjson-c-dev libxxhash-dev uuid-dev scdoc python3-docutils \
	dmsetup fio e2fsprogs xfsprogs mount procps python3 python3-pytest python3-pytest-xdist \
	udev systemd libcmocka-dev qemu-system-x86 linux-image-amd64 busybox-static cpio zstd \
	lvm2 thin-provisioning-tools mdadm cryptsetup-bin nbd-server nbd-client strace fdisk mmdebstrap zsh fish

# boot.mk: udev/, systemd/, dracut/, initramfs-tools/
PARTS := userspace/Makefile boot.mk
MODULE_DIRS := $(if $(shell grep -ls 'module\.o' dm-hybrid/Kbuild),dm-hybrid)

##@ Build

## all: the modules for the running kernel, the tools, the manual pages
all: modules userspace man

# --- modules ------------------------------------------------------------------

# $(call build-modules,<name under build/>,<kernel>,<source directories>,<make arguments>)
# The lock: concurrent test runs all begin by bringing the modules up to date.
# A copy gets the time of copying.  So a file that changes during its compilation is newer
# than its object.
define build-modules
	@test -n "$(2)" || { echo "no kernel headers: set KDIR=, or run 'make deps'" >&2; exit 1; }
	@mkdir -p build/$(1)
	+@flock build/$(1)/.lock sh -ec 'for d in $(3); do \
		rsync -rlpc --delete-excluded --exclude=Documentation --include="*/" \
			--include="*.[ch]" --include=Kbuild --include=Kconfig \
			--filter="P *.o" --filter="P *.ko" --filter="P *.mod" --filter="P *.mod.c" \
			--filter="P .*" --filter="P Module.symvers" --filter="P modules.order" \
			--exclude="*" $$d/ build/$(1)/$$(basename $$d)/; \
		env -u MAKEFLAGS -u MFLAGS $(MAKE) -s -C $(2) M=$(CURDIR)/build/$(1)/$$(basename $$d) \
			$(4) modules; \
	done'
endef

## modules: only the modules; KDIR=: headers of another kernel
modules:
	$(call build-modules,modules,$(KDIR),$(MODULE_DIRS),)

# For the style tests: all modules, against Debian's kernel, as strictly as possible.
modules-amd64:
	$(call build-modules,modules-amd64,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,W=1)

# For another Debian kernel: tests/guest/kernels.py passes the kernel and the arguments.
modules-debian:
	$(call build-modules,modules-$(KERNEL),$(KERNEL_HEADERS),$(MODULE_DIRS) tests/modules,W=1 \
		$(KERNEL_ARGS))

modules-amd64-clang:
	$(call build-modules,modules-amd64-clang,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,W=1 \
		CC=$(CURDIR)/tests/style/clang-as-gcc CONFIG_OBJTOOL=)

# C=2 checks every file each time, so a second run repeats the warnings.
modules-sparse:
	$(call build-modules,modules-sparse,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,C=2)

# The kernel for test guests, kept outside the tree. Prints its directory.
guest-kernel:
	@tests/guest/build-kernel $(GUEST)

# A guest loads modules from build/guest-<kernel>/lib/modules/<release>, laid out for modprobe.
## guest-modules: a test guest's kernel and its modules; GUEST=uml-debug: with KASAN
guest-modules: guest-test-modules
	$(call build-modules,modules-$(STAGE),$(GUEST_KDIR),$(MODULE_DIRS),ARCH=$(if $(filter x86-%,$(GUEST)),x86,um))
	$(install-guest-modules)

# Only the modules of the tests: they must load even while dm-hybrid does not build.
guest-test-modules: guest-kernel
	$(eval GUEST_KDIR := $(shell tests/guest/build-kernel $(GUEST)))
	$(call build-modules,modules-$(STAGE),$(GUEST_KDIR),tests/modules,ARCH=$(if $(filter x86-%,$(GUEST)),x86,um))
	$(install-guest-modules)

define install-guest-modules
	@flock build/modules-$(STAGE)/.lock \
		tests/guest/install-modules $(GUEST_KDIR) build/modules-$(STAGE) build/guest-$(STAGE)
endef

# --- the rest -----------------------------------------------------------------

## userspace: only the tools
userspace:
	$(call each,all)

## man: only the manual pages
man:
	$(call each,man)

## help: this list
help:
	@awk '/^##@ /{ print "\n" substr($$0, 5); next } \
		/^## [a-z-]+: /{ i = index($$0, ": "); printf "  %-20s %s\n", substr($$0, 4, i - 4), substr($$0, i + 2) }' \
		Makefile

## clean: remove build/ and all else that was built
clean:
	@for f in $(PARTS) $(wildcard tests/*/Makefile); do \
		$(MAKE) -C $$(dirname $$f) -f $$(basename $$f) clean || exit 1; \
	done
	rm -rf build

##@ Install

## install: modules, tools, manual pages, udev rules, units, initramfs hooks; DESTDIR=, prefix=
install: modules userspace man
	$(call each,install)
	@for d in $(MODULE_DIRS); do \
		$(MAKE) -C $(KDIR) M=$(CURDIR)/build/modules/$$d INSTALL_MOD_PATH=$(DESTDIR) \
			INSTALL_MOD_DIR=updates modules_install || exit 1; \
	done

# The modules' sources, where DKMS looks for them. Not every kernel has KUnit, so DKMS gets no KUnit tests.
dkms := $(DESTDIR)/usr/src/dm-hybrid-$(version)

## install-dkms: the modules' sources, for DKMS
install-dkms:
	install -D -m 644 -t $(dkms) dm-hybrid/*.[ch] dm-hybrid/Kbuild dm-hybrid/Kconfig
	install -D -m 644 -t $(dkms)/core dm-hybrid/core/*.[ch]
	install -D -m 644 -t $(dkms)/policy dm-hybrid/policy/*.[ch]
	{ sed 's/@version@/$(version)/' dkms.conf.in; \
	  sed -n '/KUNIT_TEST/d; s/^obj-.* += \(.*\)\.o$$/\1/p' dm-hybrid/Kbuild | awk '{ \
		printf "BUILT_MODULE_NAME[%d]=\"%s\"\nDEST_MODULE_LOCATION[%d]=\"/updates/dkms\"\n", \
			NR - 1, $$1, NR - 1 }'; } > $(dkms)/dkms.conf

# Packages contain only committed files.
dist := build/packages/dm-hybrid-$(version)

dist:
	@mkdir -p build/packages
	@git archive --prefix=dm-hybrid-$(version)/ -o $(dist).tar.gz HEAD

## deb: Debian packages, in build/packages
deb: dist
	rm -rf $(dist) build/packages/*.deb
	tar -C build/packages -xzf $(dist).tar.gz
	cd $(dist) && dpkg-buildpackage -us -uc -b
	lintian --allow-root --fail-on error,warning build/packages/*.changes

## rpm: RPM packages, in build/packages/RPMS; RPMBUILD_ARGS=--nodeps on a Debian
rpm: dist
	rpmbuild -bb --define "_topdir $(CURDIR)/build/packages" \
		--define "_sourcedir $(CURDIR)/build/packages" $(RPMBUILD_ARGS) rpm/dm-hybrid.spec

## uninstall: remove all that install put there
uninstall:
	$(call each,uninstall)
	@for d in $(DESTDIR)/lib/modules/*; do \
		ls $$d/updates/dm-hybrid*.ko* >/dev/null 2>&1 || continue; \
		rm -f $$d/updates/dm-hybrid*.ko*; \
		test ! -e $$d/modules.dep || depmod -b "$(DESTDIR)/" $${d##*/} || exit 1; \
	done

# --- tests --------------------------------------------------------------------

##@ Test

## deps: install all build and test dependencies, on Debian 12 as root; DEPS=: only these packages
deps:
	@missing=$$(for p in $(DEPS); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; \
	done); \
	test -z "$$missing" || { \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update && apt-get install -y --no-install-recommends $$missing; }

# $(call pytest,<tests>,<environment>)
# Each guest has one CPU: as many tests run in parallel as there are CPUs.
define pytest
	@jobs=; $(PYTHON) -c 'import xdist' 2>/dev/null && jobs="-n $$(nproc)"; \
	$(2) $(PYTHON) -m pytest -c tests/pytest.ini $$jobs $(PYTEST_ARGS) $(1)
endef

## check: build and run all tests, as CI does; TESTS=tests/check: only these; PYTEST_ARGS=
check: deps
	$(MAKE) all guest-modules
	$(MAKE) guest-modules GUEST=uml-debug
	$(call pytest,$(TESTS))

## lint: only the tests of style: checkpatch, sparse, gcc and clang with W=1, prose
lint: deps
	$(call pytest,tests/style)

## check-sim: the simulator, fresh seeds, five minutes; SEED= SEEDS= MODE= SIM_SECONDS=
check-sim:
	+@$(MAKE) -s -C tests/sim check

## check-long: the simulator for hours, gcc and clang, sanitizers; can be interrupted, and goes on
check-long:
	+@$(MAKE) -s -C tests/sim long

## coverage: lines and branches of the pure files that tests and simulator reach
coverage:
	$(PYTHON) tests/sim/covered.py

## check-long-kernel: longer recordings and more power cuts in guests
check-long-kernel: all guest-modules
	DM_HYBRID_LONG=1 $(PYTHON) -m pytest -c tests/pytest.ini -m long $(PYTEST_ARGS) tests

# One kernel after the other, each built on first use; FLAVOUR=uml-debug, for example, takes only one.
FLAVOUR ?= uml-debug x86-debug x86-kcsan

## check-debug-kernel: the tests in guests, under KASAN, lockdep, kmemleak, KCSAN; FLAVOUR=x86-kcsan
check-debug-kernel: $(FLAVOUR:%=check-%)

$(FLAVOUR:%=check-%): deps userspace
	$(MAKE) guest-modules GUEST=$(@:check-%=%)
	$(call pytest,tests/kernel tests/cli/test_guest.py,DM_HYBRID_GUEST=$(@:check-%=%))

FUZZ_SECONDS ?= 60

## fuzz: hostile input, each target for FUZZ_SECONDS; FUZZ="load check": only these
fuzz: deps
	+@$(MAKE) -s -C tests/fuzz
	@$(PYTHON) tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(FUZZ)

# The tests fetch the packages of a Debian once, and cache the systems that they make of them.
## check-boot: Debian booted from a volume, in QEMU: a table of cases; up to an hour
check-boot: deps
	$(MAKE) userspace guest-modules
	$(call pytest,-m boot tests/boot,DM_HYBRID_BOOT=1)

## check-isolation: a member that hangs, beside each operation of a healthy volume: two tables; ten minutes
check-isolation: deps userspace
	+@$(MAKE) -s -C tests/sim isolation
	$(MAKE) guest-modules
	$(call pytest,tests/kernel/test_isolation.py,DM_HYBRID_ISOLATION=1)

## check-life: each fault of a cache device, ended by the commands that hybridctl status names: a table
check-life: deps userspace
	$(MAKE) guest-modules
	$(call pytest,tests/life,DM_HYBRID_LIFE=1)

## check-policies: each replacement policy against its paper; TRACES=DIR: recorded traces, too
check-policies: deps userspace
	$(if $(TRACES),$(MAKE) deps DEPS="zstd")
	@cd tests; TRACES="$(abspath $(TRACES))" $(PYTHON) -m policies.compare

# RPM packages are only built: there is no RPM-based guest.
## check-packages: the packages built, installed in a Debian, booted, purged: a table
check-packages: deps
	$(MAKE) deps DEPS="mmdebstrap debhelper dh-dkms lintian rpm"
	$(MAKE) deb
	$(MAKE) rpm RPMBUILD_ARGS=--nodeps
	DM_HYBRID_PACKAGES=1 $(PYTHON) -m pytest -c tests/pytest.ini $(PYTEST_ARGS) tests/packages

# Fetches kernel packages from the machine's mirror, and caches them.
## check-kernels: Debian's other kernels: builds, loads, passes; KERNELS="6.12 newest"
check-kernels: deps userspace
	@cd tests && $(PYTHON) -m guest.kernels $(KERNELS) $(PYTEST_ARGS)

# One guest after the other, because the tests measure seconds.
## check-stacks: the stacks of examples/ built, filled, power-cycled, verified, measured: a table
check-stacks: deps
	$(MAKE) deps DEPS="postgresql-15"
	$(MAKE) userspace guest-modules
	DM_HYBRID_STACKS=1 $(PYTHON) -m pytest -c tests/pytest.ini $(PYTEST_ARGS) tests/stacks

## check-mutants: seeded defects that the tests must find; MUTANTS="431 outer/245", MUTANTS=outer
check-mutants: deps
	$(PYTHON) tests/mutants/run.py $(MUTANTS)

##@ Measure

## bench: dm-hybrid and its peers in virtual time; BENCH="zipf burst" STACKS="hybrid dmcache-wb-64" SEED=2
## bench-quick: only the figures with a goal: a line for each
# A result is reused until one of its inputs changes; BENCH_ARGS=--again measures again.
bench bench-quick: deps
	@$(MAKE) -s userspace
	@$(PYTHON) bench/run.py $(if $(filter %-quick,$@),--quick) --works "$(BENCH)" --stacks "$(STACKS)" \
		--seed $(or $(SEED),1) $(BENCH_ARGS)

## bench-bounds: after bench: the limits of placement alone, by lists without an engine
bench-bounds:
	@$(PYTHON) bench/bounds.py --seed $(or $(SEED),1)

## bench-scale: engine and hybrid_check at 1 TiB and 16 TiB of cache (10 GiB of RAM); SIZES="1024:64"
bench-scale:
	@$(MAKE) -s -C userspace tests
	@$(PYTHON) tests/check/scale.py build/userspace $(SIZES)
	@$(PYTHON) tests/check/bench.py build/userspace

## headline: fsync, eviction, power cut: the outcome with dm-hybrid and with dm-cache
headline: guest-modules userspace
	@$(PYTHON) tests/kernel/headline.py $(GUEST_KDIR) build/guest-$(GUEST) build/userspace

# The demo needs fewer packages than other targets: no headers of the running kernel, and no compilers
# and emulators that only the tests use.
DEMO_DEPS := build-essential bc bison flex libelf-dev xz-utils kmod patch pkg-config rsync \
	linux-source-6.1 libdevmapper-dev libblkid-dev libfdisk-dev libmount-dev libudev-dev libjson-c-dev libxxhash-dev uuid-dev \
	dmsetup fio e2fsprogs xfsprogs mount procps python3

## demo: a database's load with and without a cache, and a power cut, in a guest; needs no hardware
demo:
	@echo "Installing what is missing, building the guest's kernel (some minutes the first" \
		"time), dm-hybrid and hybridctl."
	@$(MAKE) -s deps DEPS="$(DEMO_DEPS)"
	@$(MAKE) -s --no-print-directory guest-modules
	@$(MAKE) -s --no-print-directory userspace
	$(PYTHON) demo/demo.py $(DEMO_ARGS)

.PHONY: all bench bench-bounds bench-quick bench-scale check check-boot check-debug-kernel \
	check-isolation check-kernels check-life check-long check-long-kernel check-mutants \
	check-packages check-policies check-sim check-stacks clean coverage deb demo deps fuzz \
	guest-modules headline install install-dkms lint man modules rpm uninstall userspace \
	modules-debian modules-amd64 modules-amd64-clang modules-sparse guest-kernel guest-test-modules \
	dist help $(FLAVOUR:%=check-%)
