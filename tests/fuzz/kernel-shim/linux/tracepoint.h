/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Nobody traces. */
#ifndef SHIM_LINUX_TRACEPOINT_H
#define SHIM_LINUX_TRACEPOINT_H

#define TRACE_DEFINE_ENUM(x) struct shim_trace_enum
#define TP_PROTO(...) __VA_ARGS__
#define TRACE_EVENT(name, proto, ...)					\
	static inline void trace_##name(proto) { }			\
	static inline bool trace_##name##_enabled(void) { return false; }
#define DECLARE_EVENT_CLASS(name, proto, ...) struct shim_class_##name
#define DEFINE_EVENT(class, name, proto, ...) TRACE_EVENT(name, proto)

#endif
