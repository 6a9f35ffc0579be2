// SPDX-License-Identifier: GPL-2.0-or-later
/* The module's own parsers of tables and messages: ctr.c and message.c, as they are. */
#include "targets.h"

#include "events.h"
#include "io.h"

#define MAX_ARGS	64

void kernel_table(const char *text);

void kernel_table(const char *text)
{
	char *line = strdup(text), *argv[MAX_ARGS], *error = NULL;
	unsigned int argc = shim_split_args(line, argv, MAX_ARGS);
	struct dm_arg_set as = { argc, argv };
	struct volume_args volume = { 0 };
	struct pool_args pool;

	if (hybrid_pool_parse(&as, &pool, &error)) {
		if (!error)
			found("refused without a reason");
	} else if (!pool.policy) {
		found("accepted a bad pool table");
	}
	as = (struct dm_arg_set){ argc, argv };
	error = NULL;
	if (hybrid_volume_parse(&as, &volume, &error) && !error)
		found("refused without a reason");
	free(line);
}

/* ---- messages --------------------------------------------------------------------- */

static struct pool *used;

void hybrid_run(struct hybrid_pool *pool, struct hybrid_actions *acts)
{
	list_splice_tail_init(&acts->list, &used->x.acts.list);
	hybrid_execute_all(&used->x);
}

void hybrid_tick_kick(struct hybrid_pool *pool)
{
}

void hybrid_events_expect_drained(struct hybrid_pool *pool, u32 *reported)
{
}

/* pool.c's: the policies linked in have no modules. */
int hybrid_pool_set_policy(struct hybrid_pool *pool, const struct hybrid_policy_type *policy)
{
	int r = pool->policy != policy ? hybrid_engine_set_policy(pool->engine, policy) : 0;

	if (!r)
		pool->policy = policy;
	return r;
}

int hybrid_pool_record(struct hybrid_pool *pool)
{
	return 0;
}

int hybrid_pool_rename(struct hybrid_pool *pool, const char *name)
{
	return 0;
}

/* No table has it. */
int hybrid_volume_release(struct hybrid_pool *pool, u32 id)
{
	return 0;
}

int hybrid_volume_renew(struct hybrid_pool *pool, u32 id)
{
	return 0;
}

int hybrid_volume_extend(struct volume_object *object, const u8 *member_uuid)
{
	return 0;
}

bool hybrid_volume_opened(struct hybrid_pool *pool, u32 id)
{
	return false;
}

void hybrid_trace_op(const struct hybrid_pool *pool, const struct hybrid_op *op)
{
}

void hybrid_trace_ops(const struct hybrid_pool *pool, const struct hybrid_actions *acts,
		      const struct list_head *last)
{
}

/* One line: to the pool, or with ">" in front to a volume. */
static void message(struct hybrid_pool *pool, struct volume_object *object, char *line)
{
	static char result[1 << 20];
	struct pool_table pt = { .pool = pool };
	struct volume_table vt = { .object = object };
	struct dm_target ti = { .private = &pt };
	char *argv[MAX_ARGS];
	unsigned int argc;

	object->bound = &vt;
	if (*line == '>') {
		ti.private = &vt;
		argc = shim_split_args(line + 1, argv, MAX_ARGS);
		if (argc)
			hybrid_volume_message(&ti, argc, argv, result, sizeof(result));
		return;
	}
	argc = shim_split_args(line, argv, MAX_ARGS);
	if (argc)
		hybrid_pool_message(&ti, argc, argv, result, sizeof(result));
}

/* Metadata changed by messages must be good for the next activation. */
void fuzz_message(const u8 *bytes, size_t len)
{
	struct image *im = image_find("clean");
	struct hybrid_pool pool = { .running = true };
	struct volume_object object = { .pool = &pool };
	char *text = text_of(bytes, len), *line, *rest;
	char policy[HYBRID_POLICY_NAME_SIZE];
	struct outcome out;
	const char *why;
	struct pool p;

	image_reset(im);
	image_pool(im, &p);
	if (pool_load(&p, &why) || pool_open(&p, image_volume[0], 0, &why))
		found("no pool: %s", why);
	used = &p;
	pool.engine = p.x.engine;
	hybrid_engine_policy_name(p.x.engine, policy);
	pool.policy = hybrid_policy_get(policy);
	object.handle = p.volume[0];
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		message(&pool, &object, line);
	if (hybrid_engine_check(p.x.engine))
		found("%s", hybrid_engine_check(p.x.engine));
	pool_stop(&p);
	free(text);
	live(im, &out);
	if (out.load)
		found("not activated again: %s", out.why);
}
