# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

# A default volume, with the mode and block size from the stack's name.
stack_up() {
	hybridctl create volume --origin $hdd --cache $ssd --mode "$MODE" ${BLOCK:+--block-size "${BLOCK}k"} \
		--yes >/tmp/hybridctl 2>&1 || die "$(cat /tmp/hybridctl)"
}

stack_start() { hybridctl activate --all --device $hdd --device $ssd >/tmp/hybridctl 2>&1 || die "$(cat /tmp/hybridctl)"; }

stack_stop() { hybridctl deactivate --all >/tmp/hybridctl 2>&1 || die "$(cat /tmp/hybridctl)"; }

stack_drain() { dmsetup message volume 0 drain; }

stack_clean() { dmsetup status volume | grep -q ' dirty 0 draining 0 '; }

# stack_attach <name> <origin>: attaches another volume to the same pool
stack_attach() {
	hybridctl attach volume-pool "$1" --origin "$2" --mode "$MODE" --yes >/tmp/hybridctl 2>&1 ||
		die "$(cat /tmp/hybridctl)"
}
