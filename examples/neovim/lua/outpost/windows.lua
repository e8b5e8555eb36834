-- What is drawn: the quickfix list of findings, the runs in a floating window, a diff in a tab.
local client = require("outpost.client")
local state = require("outpost.state")

local M = {}

local kinds = { error = "E", warning = "W", information = "I", hint = "N" }

function M.quickfix(uri)
  local items = {}
  for _, finding in ipairs(state.all_findings(uri)) do
    if state.is_shown(finding) then
      table.insert(items, {
        filename = vim.uri_to_fname(finding.uri),
        lnum = finding.range.start.line + 1,
        col = finding.range.start.character + 1,
        type = kinds[finding.severity],
        text = finding.title .. " [" .. finding.code .. "]",
      })
    end
  end
  vim.fn.setqflist({}, " ", { title = "Outpost findings", items = items })
  if #items > 0 then
    vim.cmd("copen")
  else
    vim.notify("outpost: no findings")
  end
end

-- The beginning of a text that is too wide.
local function shorten(text, width)
  while vim.fn.strdisplaywidth(text) > width and vim.fn.strchars(text) > 1 do
    text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 2) .. "…"
  end
  return text
end

local function describe(run, width)
  local title = shorten(run.title, width - vim.fn.strdisplaywidth(run.status .. "    ()" .. run.agent))
  local lines = { string.format("%s  %s  (%s)", run.status, title, run.agent) }
  for _, agent in ipairs(state.subagents[run.id] or {}) do
    table.insert(lines, string.format("  %s %s", agent.name, agent.status))
  end
  for _, route in ipairs(state.routes[run.id] or {}) do
    table.insert(lines, string.format("  %s step %d: %s (%s), %s", route.agent, route.step, route.choice, route.reason, route.model))
  end
  -- The built-in reviewer, made of rules, uses nothing: there is nothing to tell of that.
  if run.usage.input + run.usage.output > 0 or not run.usage.complete then
    local usage = string.format("  %d tokens in, %d out", run.usage.input, run.usage.output)
    if not run.usage.complete then
      usage = usage .. " at least"
    end
    if run.cost and run.cost ~= vim.NIL then
      usage = usage .. string.format(", %s%.4f %s", run.cost.complete and "" or "at least ", run.cost.amount, run.cost.currency)
    end
    table.insert(lines, usage)
    local by_agent = state.usage[run.id] or {}
    for agent, used in pairs(vim.tbl_count(by_agent) > 1 and by_agent or {}) do
      table.insert(lines, string.format("  of these %s: %d tokens in, %d out", agent, used.input, used.output))
    end
  end
  local changes = run.disposition == "none" and "" or ", changes " .. run.disposition
  table.insert(lines, string.format("  %d finding%s%s, id %s", run.findings, run.findings == 1 and "" or "s", changes, run.id))
  for _, note in ipairs(run.notes or {}) do
    table.insert(lines, "  " .. note)
  end
  if run.error and run.error ~= vim.NIL then
    table.insert(lines, "  " .. run.error.message)
  end
  return lines
end

local function scratch(lines, filetype)
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].bufhidden = "wipe"
  vim.bo[buffer].filetype = filetype
  return buffer
end

-- The runs, newest first, in a floating window that follows them until it is closed with q.
function M.runs()
  local width = math.min(100, vim.o.columns - 4)
  local function lines()
    local all = {}
    for index = #state.order, 1, -1 do
      vim.list_extend(all, describe(state.runs[state.order[index]], width))
    end
    return #all > 0 and vim.tbl_map(function(line)
      return (line:gsub("\n", " "))
    end, all) or { "no runs yet" }
  end
  local buffer = scratch(lines(), "outpost-runs")
  local height = math.max(3, math.min(24, vim.o.lines - 6))
  local window = vim.api.nvim_open_win(buffer, true, {
    relative = "editor", width = width, height = height, border = "rounded", title = " Outpost runs ",
    row = math.floor((vim.o.lines - height) / 2), col = math.floor((vim.o.columns - width) / 2), style = "minimal",
  })
  -- A sentence that is longer than a line goes on below its own beginning.
  vim.wo[window].wrap, vim.wo[window].linebreak, vim.wo[window].breakindent = true, true, true
  vim.keymap.set("n", "q", "<cmd>close<cr>", { buffer = buffer, nowait = true })
  -- Runs of earlier sessions, and of the terminal, are the server's to tell.
  client.command("runs", { limit = 50 }, function(result)
    for _, run in ipairs(result.runs) do
      state.know(run)
    end
    vim.api.nvim_exec_autocmds("User", { pattern = "OutpostChanged", modeline = false })
  end)
  local group = vim.api.nvim_create_augroup("outpost-runs", { clear = true })
  vim.api.nvim_create_autocmd("User", {
    group = group,
    pattern = "OutpostChanged",
    callback = function()
      if not vim.api.nvim_buf_is_valid(buffer) then
        return true
      end
      vim.bo[buffer].modifiable = true
      vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines())
      vim.bo[buffer].modifiable = false
    end,
  })
  return window
end

-- What a run changed, as a patch in a tab of its own.
function M.diff(result)
  if #result.files == 0 then
    vim.notify("outpost: the run changed nothing")
    return
  end
  vim.cmd("tabnew")
  vim.api.nvim_win_set_buf(0, scratch(vim.split(result.patch, "\n"), "diff"))
end

return M
