#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later

if getargbool 1 rd.hybrid; then
	# Run each time udev has settled, because members appear in any order. An idle run costs nothing.
	/sbin/initqueue --settled --unique --name hybrid-activate /sbin/hybrid-activate
	/sbin/initqueue --timeout --unique --onetime --name 51-hybrid-last /sbin/hybrid-activate --last
else
	info "rd.hybrid=0: no dm-hybrid"
	rm -f /etc/udev/rules.d/62-dm-hybrid-member.rules /lib/udev/rules.d/62-dm-hybrid-member.rules \
		/usr/lib/udev/rules.d/62-dm-hybrid-member.rules
fi
