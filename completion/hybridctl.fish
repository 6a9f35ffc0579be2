# SPDX-License-Identifier: GPL-2.0-or-later
# fish completion of hybridctl and the metadata tools. "hybridctl complete" supplies the words.

function __hybridctl_complete
	set -l words (commandline -opc) (commandline -ct)
	for line in (hybridctl complete -- $words 2>/dev/null)
		if test "$line" = :files
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end

for program in hybridctl hybrid_check hybrid_dump hybrid_metadata_size hybrid_repair hybrid_replay \
		hybrid_restore hybrid_writeback
	complete -c $program -f -a '(__hybridctl_complete)'
end
