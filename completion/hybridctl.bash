# SPDX-License-Identifier: GPL-2.0-or-later
# bash completion of hybridctl and the metadata tools. "hybridctl complete" supplies the words.

_hybridctl()
{
	local typed=${COMP_LINE:0:COMP_POINT} line words IFS=$'\n'
	local -A seen=()

	IFS=$' \t\n' read -ra words <<<"$typed"
	[[ $typed == *[[:space:]] ]] && words+=("")
	COMPREPLY=()
	while read -r line; do
		line=${line%%$'\t'*}
		if [[ $line == :files ]]; then
			compopt -o filenames 2>/dev/null
			while read -r line; do
				COMPREPLY+=("$line")
			done < <(compgen -f -- "${words[-1]}")
			continue
		fi
		[[ ${seen[$line]} ]] && continue
		seen[$line]=1
		[[ $line == *= ]] && compopt -o nospace 2>/dev/null
		# readline replaces only the text after a "="
		[[ ${words[-1]} == *=* ]] && line=${line#"${words[-1]%%=*}="}
		COMPREPLY+=("$line")
	done < <(hybridctl complete -- "${words[@]}" 2>/dev/null)
}

complete -F _hybridctl hybridctl hybrid_check hybrid_dump hybrid_metadata_size hybrid_repair \
	hybrid_replay hybrid_restore hybrid_writeback
