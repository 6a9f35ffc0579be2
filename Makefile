# SPDX-License-Identifier: GPL-2.0-or-later
#
# dm-hybrid: a device-mapper block cache.
#
#   make                the kernel module (for KDIR), the tools, the man pages
#   make install        tools, man pages, the module, and what a boot needs: udev
#                       rules, units, initramfs hooks (DESTDIR=, prefix=)
#   make check          everything a bare Debian 12 needs to build and run all tests
#   make lint           only the style tests
#   make check-sim      only the simulator, with fresh seeds, five minutes
#   make check-tools    only the tests of the metadata tools: check, dump, repair ...
#   make bench-check    what checking the metadata of 1 TiB of cache costs
#   make bench-scale    what the engine costs at 1 TiB and 16 TiB of cache; SIZES="1024:64"
#   make bench          dm-hybrid beside dm-cache, bcache, dm-writecache, dm-writeboost, in virtual time:
#                       tables, plots; BENCH="zipf burst" STACKS="hybrid dmcache-wb-64" SEED=2
#   make bench-quick    only what the goals are about: a line for each
#   make check-long     the simulator for hours; can be interrupted, and goes on
#   make coverage       which lines and branches of the pure files tests and simulator reach
#   make check-long-kernel   the kernel tests that take minutes each
#   make check-debug-kernel
#                       the tests in guests, in kernels with KASAN, lockdep, kmemleak, KCSAN
#   make fuzz           hostile input: each target for FUZZ_SECONDS; FUZZ=name ...: only these
#   make check-boot     Debian booted from a volume, in QEMU: prints a table of cases
#   make check-isolation
#                       a member that does not answer: what that costs each operation of a
#                       healthy volume, in the simulator and in guests: two tables
#   make check-policies each replacement policy and its paper: a table; TRACES=DIR: recorded traces too
#   make check-packages  the packages built, installed in a Debian, booted, purged
#   make check-kernels  other kernels of Debian's: a table of what builds, loads and passes;
#                       KERNELS="6.12 newest": only these
#   make check-stacks   the stacks of examples/: built, filled, power-cycled, verified, measured: a table
#   make headline       fsync, eviction, power cut: dm-hybrid and dm-cache, both outcomes
#   make check-mutants  would the tests notice?  Seeded defects; MUTANTS=name ...: only these,
#                       MUTANTS=outer: those outside of the engine
#   make deb            Debian's packages, in build/packages
#   make rpm            the same for RPM; rpm/kmod-dm-hybrid.spec: the module for one kernel
#   make install-dkms   the module's sources, for DKMS
#   make demo           a database on a slow disk, with and without a cache, and a power cut;
#                       in a guest: needs no hardware
#
# Modules are built from copies under build/, one for each kernel: the sources stay
# clean, and builds for different kernels never mix.

include version.mk

prefix ?= /usr/local
DESTDIR ?=
DEBIAN_HEADERS := $(lastword $(sort $(wildcard /usr/src/linux-headers-6.1.*-amd64)))
KDIR ?= $(firstword $(wildcard /lib/modules/$(shell uname -r)/build) $(DEBIAN_HEADERS))
# Debian's own: its pytest is the one that "make deps" installs.
PYTHON ?= /usr/bin/python3
PYTEST_ARGS ?=
# Which guest kernel: uml, or one of tests/guest/build-kernel's with checkers.
GUEST ?= uml
# Its modules' directories below build: modules-$(STAGE), guest-$(STAGE).
STAGE ?= $(GUEST)
export prefix DESTDIR

# $(call each,<target>): in every part
each = +@for f in $(PARTS); do $(MAKE) -C $$(dirname $$f) -f $$(basename $$f) $(1) || exit 1; done

DEPS := build-essential bc bison flex libelf-dev xz-utils kmod patch pkg-config rsync \
	linux-source-6.1 linux-headers-amd64 sparse clang libclang-rt-14-dev \
	libdevmapper-dev libblkid-dev libfdisk-dev libmount-dev libudev-dev libjson-c-dev uuid-dev scdoc python3-docutils \
	dmsetup fio e2fsprogs xfsprogs mount procps python3 python3-pytest python3-pytest-xdist \
	udev systemd libcmocka-dev qemu-system-x86 linux-image-amd64 busybox-static cpio zstd \
	lvm2 thin-provisioning-tools mdadm cryptsetup-bin nbd-server nbd-client strace fdisk mmdebstrap zsh fish

# boot.mk: udev/, systemd/, dracut/, initramfs-tools/
PARTS := userspace/Makefile boot.mk
MODULE_DIRS := $(if $(shell grep -ls 'module\.o' dm-hybrid/Kbuild),dm-hybrid)

all: modules userspace man

# --- modules ------------------------------------------------------------------

# $(call build-modules,<name under build/>,<kernel>,<source directories>,<make arguments>)
# The lock: test runs beside each other all begin by bringing the modules up to date.
# Copies get the time of copying: a file that was changed while it was compiled is newer
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

modules:
	$(call build-modules,modules,$(KDIR),$(MODULE_DIRS),)

# For the tests of style: all modules, against Debian's kernel, as strictly as can be.
modules-amd64:
	$(call build-modules,modules-amd64,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,W=1)

# For another kernel of Debian's: tests/guest/kernels.py says which, and how.
modules-debian:
	$(call build-modules,modules-$(KERNEL),$(KERNEL_HEADERS),$(MODULE_DIRS) tests/modules,W=1 \
		$(KERNEL_ARGS))

modules-amd64-clang:
	$(call build-modules,modules-amd64-clang,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,W=1 \
		CC=$(CURDIR)/tests/style/clang-as-gcc CONFIG_OBJTOOL=)

# C=2 looks at every file each time: a warning does not go away by asking again.
modules-sparse:
	$(call build-modules,modules-sparse,$(DEBIAN_HEADERS),$(MODULE_DIRS) tests/modules,C=2)

# The kernel for test guests, kept outside the tree. Prints where.
guest-kernel:
	@tests/guest/build-kernel $(GUEST)

# What a guest loads: build/guest-<kernel>/lib/modules/<release>, as modprobe wants it.
guest-modules: guest-test-modules
	$(call build-modules,modules-$(STAGE),$(GUEST_KDIR),$(MODULE_DIRS),ARCH=$(if $(filter x86-%,$(GUEST)),x86,um))
	$(install-guest-modules)

# Only those of the tests: they must load while dm-hybrid does not build.
guest-test-modules: guest-kernel
	$(eval GUEST_KDIR := $(shell tests/guest/build-kernel $(GUEST)))
	$(call build-modules,modules-$(STAGE),$(GUEST_KDIR),tests/modules,ARCH=$(if $(filter x86-%,$(GUEST)),x86,um))
	$(install-guest-modules)

define install-guest-modules
	@flock build/modules-$(STAGE)/.lock \
		tests/guest/install-modules $(GUEST_KDIR) build/modules-$(STAGE) build/guest-$(STAGE)
endef

# --- the rest -----------------------------------------------------------------

userspace:
	$(call each,all)

man:
	$(call each,man)

install: modules userspace man
	$(call each,install)
	@for d in $(MODULE_DIRS); do \
		$(MAKE) -C $(KDIR) M=$(CURDIR)/build/modules/$$d INSTALL_MOD_PATH=$(DESTDIR) \
			INSTALL_MOD_DIR=updates modules_install || exit 1; \
	done

# The module's sources, where DKMS looks for them. Tests are built where the kernel has KUnit: not everywhere.
dkms := $(DESTDIR)/usr/src/dm-hybrid-$(version)

install-dkms:
	install -D -m 644 -t $(dkms) dm-hybrid/*.[ch] dm-hybrid/Kbuild dm-hybrid/Kconfig
	install -D -m 644 -t $(dkms)/core dm-hybrid/core/*.[ch]
	install -D -m 644 -t $(dkms)/policy dm-hybrid/policy/*.[ch]
	{ sed 's/@version@/$(version)/' dkms.conf.in; \
	  sed -n '/KUNIT_TEST/d; s/^obj-.* += \(.*\)\.o$$/\1/p' dm-hybrid/Kbuild | awk '{ \
		printf "BUILT_MODULE_NAME[%d]=\"%s\"\nDEST_MODULE_LOCATION[%d]=\"/updates/dkms\"\n", \
			NR - 1, $$1, NR - 1 }'; } > $(dkms)/dkms.conf

# Packages are made of what is committed.
dist := build/packages/dm-hybrid-$(version)

dist:
	@mkdir -p build/packages
	@git archive --prefix=dm-hybrid-$(version)/ -o $(dist).tar.gz HEAD

# build/packages/*.deb
deb: dist
	rm -rf $(dist) build/packages/*.deb
	tar -C build/packages -xzf $(dist).tar.gz
	cd $(dist) && dpkg-buildpackage -us -uc -b
	lintian --allow-root --fail-on error,warning build/packages/*.changes

# build/packages/RPMS; RPMBUILD_ARGS=--nodeps where the libraries are not rpm's
rpm: dist
	rpmbuild -bb --define "_topdir $(CURDIR)/build/packages" \
		--define "_sourcedir $(CURDIR)/build/packages" $(RPMBUILD_ARGS) rpm/dm-hybrid.spec

uninstall:
	$(call each,uninstall)
	@for d in $(DESTDIR)/lib/modules/*; do \
		ls $$d/updates/dm-hybrid*.ko* >/dev/null 2>&1 || continue; \
		rm -f $$d/updates/dm-hybrid*.ko*; \
		test ! -e $$d/modules.dep || depmod -b "$(DESTDIR)/" $${d##*/} || exit 1; \
	done

# --- tests --------------------------------------------------------------------

deps:
	@missing=$$(for p in $(DEPS); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; \
	done); \
	test -z "$$missing" || { \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update && apt-get install -y --no-install-recommends $$missing; }

# $(call pytest,<tests>,<environment>)
# Guests have one CPU each: as many beside each other as there are.
define pytest
	@jobs=; $(PYTHON) -c 'import xdist' 2>/dev/null && jobs="-n $$(nproc)"; \
	$(2) $(PYTHON) -m pytest -c tests/pytest.ini $$jobs $(PYTEST_ARGS) $(1)
endef

check: deps
	$(MAKE) all guest-modules
	$(MAKE) guest-modules GUEST=uml-debug
	$(call pytest,tests)

lint: deps
	$(call pytest,tests/style)

check-tools: userspace
	$(call pytest,tests/check)

bench-check:
	@$(MAKE) -s -C userspace tests
	@$(PYTHON) tests/check/bench.py build/userspace

bench-scale:
	@$(MAKE) -s -C userspace tests
	@$(PYTHON) tests/check/scale.py build/userspace $(SIZES)

# Nothing is measured again that has not changed; BENCH_ARGS=--again does.
bench bench-quick: deps
	@$(MAKE) -s userspace
	@$(PYTHON) bench/run.py $(if $(filter %-quick,$@),--quick) --works "$(BENCH)" --stacks "$(STACKS)" \
		--seed $(or $(SEED),1) $(BENCH_ARGS)

bench-bounds:
	@$(PYTHON) bench/bounds.py --seed $(or $(SEED),1)

check-sim:
	+@$(MAKE) -s -C tests/sim check

check-long:
	+@$(MAKE) -s -C tests/sim long

coverage:
	$(PYTHON) tests/sim/covered.py

check-long-kernel: all guest-modules
	DM_HYBRID_LONG=1 $(PYTHON) -m pytest -c tests/pytest.ini -m long $(PYTEST_ARGS) tests

# One kernel after the other, each built the first time; or FLAVOUR=uml-debug and so on.
FLAVOUR ?= uml-debug x86-debug x86-kcsan

check-debug-kernel: $(FLAVOUR:%=check-%)

$(FLAVOUR:%=check-%): deps userspace
	$(MAKE) guest-modules GUEST=$(@:check-%=%)
	$(call pytest,tests/kernel tests/cli/test_guest.py,DM_HYBRID_GUEST=$(@:check-%=%))

FUZZ_SECONDS ?= 60

fuzz: deps
	+@$(MAKE) -s -C tests/fuzz
	@$(PYTHON) tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(FUZZ)

headline: guest-modules userspace
	@$(PYTHON) tests/kernel/headline.py $(GUEST_KDIR) build/guest-$(GUEST) build/userspace

# The packages that a Debian is made of are fetched once, and what is made of them cached.
check-boot: deps
	$(MAKE) userspace guest-modules
	$(call pytest,-m boot tests/boot,DM_HYBRID_BOOT=1)

check-isolation: deps userspace
	+@$(MAKE) -s -C tests/sim isolation
	$(MAKE) guest-modules
	$(call pytest,tests/kernel/test_isolation.py,DM_HYBRID_ISOLATION=1)

# What may befall a cache device, by what an admin wants then: a table, in guests.
check-life: deps userspace
	$(MAKE) guest-modules
	$(call pytest,tests/life,DM_HYBRID_LIFE=1)

check-policies: deps userspace
	$(if $(TRACES),$(MAKE) deps DEPS="zstd")
	@cd tests; TRACES="$(abspath $(TRACES))" $(PYTHON) -m policies.compare

# Debian's packages installed, booted, purged; RPM's only built: no such system is at hand.
check-packages: deps
	$(MAKE) deps DEPS="mmdebstrap debhelper dh-dkms lintian rpm"
	$(MAKE) deb
	$(MAKE) rpm RPMBUILD_ARGS=--nodeps
	DM_HYBRID_PACKAGES=1 $(PYTHON) -m pytest -c tests/pytest.ini $(PYTEST_ARGS) tests/packages

# Packages are fetched from the machine's mirror, by themselves, and cached.
check-kernels: deps userspace
	@cd tests && $(PYTHON) -m guest.kernels $(KERNELS) $(PYTEST_ARGS)

# What the scripts in examples/ build, in guests on modelled disks. One guest after the other:
# seconds are measured.
check-stacks: deps
	$(MAKE) deps DEPS="postgresql-15"
	$(MAKE) userspace guest-modules
	DM_HYBRID_STACKS=1 $(PYTHON) -m pytest -c tests/pytest.ini $(PYTEST_ARGS) tests/stacks

check-mutants: deps
	$(PYTHON) tests/mutants/run.py $(MUTANTS)

# Less than all the rest needs: neither headers of this kernel nor compilers and emulators
# that only the tests use.
DEMO_DEPS := build-essential bc bison flex libelf-dev xz-utils kmod patch pkg-config rsync \
	linux-source-6.1 libdevmapper-dev libblkid-dev libfdisk-dev libmount-dev libudev-dev libjson-c-dev uuid-dev \
	dmsetup fio e2fsprogs xfsprogs mount procps python3

demo:
	@echo "Installing what is missing, building the guest's kernel (some minutes the first" \
		"time), dm-hybrid and hybridctl."
	@$(MAKE) -s deps DEPS="$(DEMO_DEPS)"
	@$(MAKE) -s --no-print-directory guest-modules
	@$(MAKE) -s --no-print-directory userspace
	$(PYTHON) demo/demo.py $(DEMO_ARGS)

clean:
	@for f in $(PARTS) $(wildcard tests/*/Makefile); do \
		$(MAKE) -C $$(dirname $$f) -f $$(basename $$f) clean || exit 1; \
	done
	rm -rf build

.PHONY: all modules modules-amd64 modules-debian modules-amd64-clang modules-sparse guest-kernel guest-modules \
	guest-test-modules userspace man \
	install install-dkms uninstall dist deb rpm deps check lint check-tools bench bench-quick bench-bounds bench-check bench-scale check-sim check-mutants check-long coverage \
	check-long-kernel check-policies check-debug-kernel $(FLAVOUR:%=check-%) fuzz check-boot check-isolation check-life check-packages check-kernels check-stacks headline demo clean
