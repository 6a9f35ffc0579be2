/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_LIST_H
#define SHIM_LINUX_LIST_H

#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/types.h>

#define LIST_HEAD_INIT(name) { &(name), &(name) }
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)
#define LIST_POISON1 ((void *)0x101)
#define LIST_POISON2 ((void *)0x122)

static inline void INIT_LIST_HEAD(struct list_head *head)
{
	WRITE_ONCE(head->next, head);
	head->prev = head;
}

static inline void shim_list_link(struct list_head *prev, struct list_head *next)
{
	next->prev = prev;
	WRITE_ONCE(prev->next, next);
}

static inline void list_add(struct list_head *new, struct list_head *head)
{
	struct list_head *next = head->next;

	shim_list_link(new, next);
	shim_list_link(head, new);
}

static inline void list_add_tail(struct list_head *new, struct list_head *head)
{
	list_add(new, head->prev);
}

static inline void list_del(struct list_head *entry)
{
	shim_list_link(entry->prev, entry->next);
	entry->next = LIST_POISON1;
	entry->prev = LIST_POISON2;
}

static inline void list_del_init(struct list_head *entry)
{
	shim_list_link(entry->prev, entry->next);
	INIT_LIST_HEAD(entry);
}

static inline void list_replace(struct list_head *old, struct list_head *new)
{
	shim_list_link(new, old->next);
	shim_list_link(old->prev, new);
}

static inline void list_replace_init(struct list_head *old, struct list_head *new)
{
	list_replace(old, new);
	INIT_LIST_HEAD(old);
}

static inline void list_move(struct list_head *entry, struct list_head *head)
{
	shim_list_link(entry->prev, entry->next);
	list_add(entry, head);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	shim_list_link(entry->prev, entry->next);
	list_add_tail(entry, head);
}

static inline int list_empty(const struct list_head *head)
{
	return READ_ONCE(head->next) == head;
}

static inline void list_rotate_left(struct list_head *head)
{
	if (!list_empty(head))
		list_move_tail(head->next, head);
}

static inline int list_is_singular(const struct list_head *head)
{
	return !list_empty(head) && head->next == head->prev;
}

static inline int list_is_first(const struct list_head *entry, const struct list_head *head)
{
	return entry->prev == head;
}

static inline int list_is_last(const struct list_head *entry, const struct list_head *head)
{
	return entry->next == head;
}

static inline void list_splice(const struct list_head *list, struct list_head *head)
{
	if (!list_empty(list)) {
		struct list_head *first = list->next, *last = list->prev;

		shim_list_link(last, head->next);
		shim_list_link(head, first);
	}
}

static inline void list_splice_tail(const struct list_head *list, struct list_head *head)
{
	list_splice(list, head->prev);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head);
	INIT_LIST_HEAD(list);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	list_splice_tail(list, head);
	INIT_LIST_HEAD(list);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first_entry(ptr, type, member) list_entry((ptr)->next, type, member)
#define list_last_entry(ptr, type, member) list_entry((ptr)->prev, type, member)
#define list_first_entry_or_null(ptr, type, member) \
	(list_empty(ptr) ? NULL : list_first_entry(ptr, type, member))
#define list_next_entry(pos, member) \
	list_entry((pos)->member.next, __typeof__(*(pos)), member)
#define list_prev_entry(pos, member) \
	list_entry((pos)->member.prev, __typeof__(*(pos)), member)
#define list_entry_is_head(pos, head, member) (&(pos)->member == (head))

#define list_for_each(pos, head) \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define list_for_each_safe(pos, n, head)				\
	for ((pos) = (head)->next, (n) = (pos)->next; (pos) != (head);	\
	     (pos) = (n), (n) = (pos)->next)
#define list_for_each_entry(pos, head, member)				\
	for ((pos) = list_first_entry(head, __typeof__(*(pos)), member); \
	     !list_entry_is_head(pos, head, member);			\
	     (pos) = list_next_entry(pos, member))
#define list_for_each_entry_reverse(pos, head, member)			\
	for ((pos) = list_last_entry(head, __typeof__(*(pos)), member);	\
	     !list_entry_is_head(pos, head, member);			\
	     (pos) = list_prev_entry(pos, member))
#define list_for_each_entry_safe(pos, n, head, member)			\
	for ((pos) = list_first_entry(head, __typeof__(*(pos)), member), \
	     (n) = list_next_entry(pos, member);			\
	     !list_entry_is_head(pos, head, member);			\
	     (pos) = (n), (n) = list_next_entry(n, member))

#define HLIST_HEAD_INIT { NULL }
#define HLIST_HEAD(name) struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(ptr) ((ptr)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *n)
{
	n->next = NULL;
	n->pprev = NULL;
}

static inline int hlist_unhashed(const struct hlist_node *n)
{
	return !n->pprev;
}

static inline int hlist_empty(const struct hlist_head *head)
{
	return !head->first;
}

static inline void hlist_add_head(struct hlist_node *n, struct hlist_head *head)
{
	n->next = head->first;
	if (n->next)
		n->next->pprev = &n->next;
	head->first = n;
	n->pprev = &head->first;
}

static inline void hlist_del_init(struct hlist_node *n)
{
	if (hlist_unhashed(n))
		return;
	*n->pprev = n->next;
	if (n->next)
		n->next->pprev = n->pprev;
	INIT_HLIST_NODE(n);
}

static inline void hlist_del(struct hlist_node *n)
{
	hlist_del_init(n);
	n->next = LIST_POISON1;
	n->pprev = LIST_POISON2;
}

#define hlist_entry(ptr, type, member) container_of(ptr, type, member)
#define hlist_entry_safe(ptr, type, member) ({				\
	__typeof__(ptr) shim_node = (ptr);				\
	shim_node ? hlist_entry(shim_node, type, member) : NULL; })
#define hlist_for_each_entry(pos, head, member)				\
	for ((pos) = hlist_entry_safe((head)->first, __typeof__(*(pos)), member); \
	     (pos);							\
	     (pos) = hlist_entry_safe((pos)->member.next, __typeof__(*(pos)), member))
#define hlist_for_each_entry_safe(pos, n, head, member)			\
	for ((pos) = hlist_entry_safe((head)->first, __typeof__(*(pos)), member); \
	     (pos) && ({ (n) = (pos)->member.next; 1; });		\
	     (pos) = hlist_entry_safe(n, __typeof__(*(pos)), member))

#endif
