"""The face for clusters: runs of others carried out here, on Ray. Needs the extra `ray`; nothing else imports it."""
