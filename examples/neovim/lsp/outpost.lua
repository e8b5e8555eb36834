-- The configuration that `vim.lsp.enable("outpost")` finds; it works without the rest of this plugin.
local function tell(name)
  return function(_, params)
    local found, state = pcall(require, "outpost.state")
    if found then
      state[name](params)
    end
  end
end

-- How a run ended is told in one line that fits, so that nobody has to press Enter; warnings and errors stay whole. A line
-- that is too long loses its middle: the run is named at its beginning, what came of it at its end.
local function show_message(fault, params, context)
  if params.type < 3 then
    return vim.lsp.handlers["window/showMessage"](fault, params, context)
  end
  local line = params.message:gsub("%s+", " ")
  local room = math.max(20, vim.o.columns - 15)
  if vim.fn.strdisplaywidth(line) > room then
    local head, length = math.floor(room / 3), vim.fn.strchars(line)
    local tail = room - 1 - head
    line = vim.fn.strcharpart(line, 0, head) .. "…" .. vim.fn.strcharpart(line, length - tail, tail)
  end
  vim.api.nvim_echo({ { line } }, true, {})
  return vim.NIL
end

return {
  cmd = { "outpost-lsp", "serve" },
  root_markers = { ".git" },
  -- All file types: a review does not ask what language a file is in. Buffers without a file are left alone.
  filetypes = nil,
  init_options = { events = "summary" },
  handlers = {
    ["$/outpost/run"] = tell("run_changed"),
    ["$/outpost/route"] = tell("routed"),
    ["$/outpost/usage"] = tell("used"),
    ["$/outpost/subagent"] = tell("subagent_changed"),
    ["$/outpost/findings"] = tell("findings_changed"),
    ["$/outpost/event"] = function() end,
    ["window/showMessage"] = show_message,
  },
}
