// SPDX-License-Identifier: GPL-2.0-or-later
/* Names of pools and volumes where devices are expected. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "inventory.h"
#include "words.h"

static int add_path(struct device_words *w, const char *path)
{
	char **list = reallocarray(w->path, w->nr + 1, sizeof(*list));

	if (!list)
		return hybrid_nomem();
	w->path = list;
	list[w->nr] = strdup(path);
	return list[w->nr] ? w->nr++, 0 : hybrid_nomem();
}

static int add_member(struct device_words *w, const struct hybrid_node *node)
{
	int i;

	if (!node || !node->member || node->active)
		return 0;
	/* The volume may be given beside its pool */
	for (i = 0; i < w->nr; i++)
		if (!strcmp(w->path[i], node->member->path))
			return 0;
	return add_path(w, node->member->path);
}

static int add_node(struct device_words *w, const struct hybrid_node *node)
{
	const struct hybrid_node *n;
	int r;

	r = add_member(w, node->kind == HYBRID_POOL ? node : node->pool);
	for (n = w->inv->nodes; n < w->inv->nodes + w->inv->nr_nodes && !r; n++)
		if (n->kind == HYBRID_VOLUME && (n == node || n->pool == node))
			r = add_member(w, n);
	return r;
}

static int fail_active(const struct hybrid_node *node)
{
	return hybrid_fail(HYBRID_BUSY, "see hybridctl status, or deactivate it first",
			   "%s is active: the metadata on its devices changes", node->name);
}

static int load(struct device_words *w)
{
	if (w->inv)
		return 0;
	w->inv = calloc(1, sizeof(*w->inv));
	return w->inv ? hybrid_inventory_load(w->inv, HYBRID_LOAD_ALL, NULL, 0) : hybrid_nomem();
}

static int add_word(struct device_words *w, const char *word, bool active)
{
	const struct hybrid_node *node = NULL;
	int r;

	/* A user who may not read devices means a file */
	if (!strchr(word, '/') && !geteuid()) {
		r = load(w);
		if (r)
			return r;
		node = hybrid_find(w->inv, word, HYBRID_ANY);
		r = node ? 0 : hybrid_check_several(w->inv, word, HYBRID_ANY);
		if (r)
			return r;
	}
	if (node && node->active && !active)
		return fail_active(node);
	if (node && node->pool && node->pool->active && !active)
		return fail_active(node->pool);
	return node && !node->active ? add_node(w, node) : add_path(w, word);
}

int device_words(struct device_words *w, int argc, char **argv, bool active)
{
	int i, r = 0;

	memset(w, 0, sizeof(*w));
	for (i = 0; i < argc && !r; i++)
		r = add_word(w, argv[i], active);
	return r;
}

void device_words_free(struct device_words *w)
{
	while (w->nr)
		free(w->path[--w->nr]);
	free(w->path);
	if (w->inv)
		hybrid_inventory_free(w->inv);
	free(w->inv);
}
