# SPDX-License-Identifier: GPL-2.0-or-later
# udev rules, systemd units, dracut module, initramfs-tools hook and scripts.  Everything
# built goes to build/boot.  Targets: all, man, install, uninstall, clean.

top := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
O ?= $(top)/build/boot

prefix ?= /usr
sbindir ?= $(prefix)/sbin
DESTDIR ?=
PKG_CONFIG ?= pkg-config
INSTALL ?= install

variable = $(or $(shell $(PKG_CONFIG) --variable=$(1) $(2) 2>/dev/null),$(3))
udevdir ?= $(call variable,udevdir,udev,/usr/lib/udev)
unitdir ?= $(call variable,systemdsystemunitdir,systemd,/usr/lib/systemd/system)
dracutdir ?= $(call variable,dracutmodulesdir,dracut,/usr/lib/dracut/modules.d)
initramfsdir ?= /usr/share/initramfs-tools

# Debian has moved device-mapper's rules: at 11, dm-hybrid's rules would run before DM_UUID is known.
dm_number ?= $(if $(wildcard /lib/udev/rules.d/55-dm.rules /usr/lib/udev/rules.d/55-dm.rules),56,11)
dm_rules := $(dm_number)-dm-hybrid.rules

members := 62-dm-hybrid-member.rules
units := hybrid-activate@.service hybrid-drain@.service hybrid-drain@.timer \
	hybrid-last-resort@.service hybrid-last-resort@.timer
dracut := module-setup.sh parse-hybrid.sh hybrid-activate.sh hybrid-shutdown.sh
dracut_module := $(dracutdir)/90dm-hybrid
scripts := local-top local-block

built := $(addprefix $(O)/,udev/$(members) udev/$(dm_rules) $(units:%=systemd/%) \
	$(dracut:%=dracut/90dm-hybrid/%) initramfs-tools/hooks/dm-hybrid initramfs-tools/scripts/dm-hybrid)

installed := $(udevdir)/rules.d/$(members) $(udevdir)/rules.d/$(dm_rules) \
	$(units:%=$(unitdir)/%) $(dracut:%=$(dracut_module)/%) $(initramfsdir)/hooks/dm-hybrid \
	$(scripts:%=$(initramfsdir)/scripts/%/dm-hybrid)

.PHONY: all man install uninstall clean FORCE
.DELETE_ON_ERROR:

all: $(built)
man:

# These paths may change from one run of make to the next.
$(O)/where: FORCE
	@mkdir -p $(O)
	@echo '$(sbindir) $(udevdir) $(dm_rules)' | cmp -s - $@ || \
		echo '$(sbindir) $(udevdir) $(dm_rules)' > $@

$(O)/%: $(top)/%.in $(O)/where
	@mkdir -p $(@D)
	@sed -e 's|@sbindir@|$(sbindir)|g' -e 's|@udevdir@|$(udevdir)|g' \
		-e 's|@dm_rules@|$(dm_rules)|g' $< > $@

$(O)/udev/$(dm_rules): $(top)/udev/dm-hybrid.rules
	@mkdir -p $(@D)
	@cp $< $@

$(O)/%: $(top)/%
	@mkdir -p $(@D)
	@cp $< $@

install: all
	$(INSTALL) -D -m 644 -t $(DESTDIR)$(udevdir)/rules.d $(O)/udev/$(members) $(O)/udev/$(dm_rules)
	$(INSTALL) -D -m 644 -t $(DESTDIR)$(unitdir) $(units:%=$(O)/systemd/%)
	$(INSTALL) -D -m 755 -t $(DESTDIR)$(dracut_module) $(dracut:%=$(O)/dracut/90dm-hybrid/%)
	$(INSTALL) -D -m 755 $(O)/initramfs-tools/hooks/dm-hybrid \
		$(DESTDIR)$(initramfsdir)/hooks/dm-hybrid
	for s in $(scripts); do \
		$(INSTALL) -D -m 755 $(O)/initramfs-tools/scripts/dm-hybrid \
			$(DESTDIR)$(initramfsdir)/scripts/$$s/dm-hybrid || exit 1; \
	done

uninstall:
	rm -f $(addprefix $(DESTDIR),$(installed))

clean:
	rm -rf $(O)
