# SPDX-License-Identifier: GPL-2.0-or-later
# Of the module, the tools and the packages; debian/changelog and rpm/*.spec say the same.
version := 0.1.0
