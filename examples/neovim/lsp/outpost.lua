-- The configuration that `vim.lsp.enable("outpost")` finds; it works without the rest of this plugin.
return {
  cmd = { "outpost-lsp", "serve" },
  root_markers = { ".git" },
  -- All file types: a review does not ask what language a file is in. Buffers without a file are left alone.
  filetypes = nil,
  init_options = { events = "summary" },
  handlers = {
    ["$/outpost/run"] = function(_, params)
      require("outpost.state").run_changed(params.run)
    end,
    ["$/outpost/route"] = function(_, params)
      require("outpost.state").routed(params)
    end,
    ["$/outpost/usage"] = function(_, params)
      require("outpost.state").used(params)
    end,
    ["$/outpost/subagent"] = function(_, params)
      require("outpost.state").subagent_changed(params)
    end,
    ["$/outpost/findings"] = function(_, params)
      require("outpost.state").findings_changed(params)
    end,
    ["$/outpost/event"] = function() end,
  },
}
