-- What the server has told: runs, routes, usage, agents and findings. Nothing here asks or draws.
local M = {
  runs = {},       -- run id -> Run
  order = {},      -- run ids, oldest first
  routes = {},     -- run id -> list of $/outpost/route params
  usage = {},      -- run id -> agent name -> { input, output }
  subagents = {},  -- run id -> list of { id, name, status, parentId }
  findings = {},   -- uri -> Finding[]
}

local function changed()
  vim.api.nvim_exec_autocmds("User", { pattern = "OutpostChanged", modeline = false })
  vim.cmd.redrawstatus({ bang = true })
end

function M.run_changed(params)
  M.know(params.run)
  changed()
end

-- A run that the server told of, now or when it was asked; ids sort by time.
function M.know(run)
  if not M.runs[run.id] then
    table.insert(M.order, run.id)
    table.sort(M.order)
  end
  M.runs[run.id] = run
end

function M.routed(params)
  M.routes[params.runId] = M.routes[params.runId] or {}
  table.insert(M.routes[params.runId], params)
  changed()
end

function M.used(params)
  local of_run = M.usage[params.runId] or {}
  M.usage[params.runId] = of_run
  local of_agent = of_run[params.agent] or { input = 0, output = 0 }
  of_run[params.agent] = of_agent
  of_agent.input = of_agent.input + params.delta.input
  of_agent.output = of_agent.output + params.delta.output
  changed()
end

function M.subagent_changed(params)
  local of_run = M.subagents[params.runId] or {}
  M.subagents[params.runId] = of_run
  for _, known in ipairs(of_run) do
    if known.id == params.id then
      known.status = params.status
      changed()
      return
    end
  end
  table.insert(of_run, params)
  changed()
end

function M.findings_changed(params)
  M.findings[params.uri] = #params.findings > 0 and params.findings or nil
  changed()
end

function M.is_running(run)
  return vim.tbl_contains({ "queued", "preparing", "running", "waiting" }, run.status)
end

-- The newest run; with `running`, the newest one that has not ended.
function M.newest(running)
  return M.newest_that(function(run) return not running or M.is_running(run) end)
end

function M.newest_that(fits)
  for index = #M.order, 1, -1 do
    local run = M.runs[M.order[index]]
    if fits(run) then
      return run
    end
  end
end

-- All findings, or those of one buffer, in the order of files and lines.
function M.all_findings(uri)
  local found = {}
  for at, findings in pairs(M.findings) do
    if not uri or at == uri then
      vim.list_extend(found, findings)
    end
  end
  table.sort(found, function(left, right)
    if left.uri ~= right.uri then
      return left.uri < right.uri
    end
    return left.range.start.line < right.range.start.line
  end)
  return found
end

function M.is_shown(finding)
  return finding.status == "open" or finding.status == "stale"
end

-- The finding under the cursor.
function M.under_cursor()
  local line = vim.api.nvim_win_get_cursor(0)[1] - 1
  for _, finding in ipairs(vim.tbl_filter(M.is_shown, M.all_findings(vim.uri_from_bufnr(0)))) do
    if finding.range.start.line <= line and line <= finding.range["end"].line then
      return finding
    end
  end
end

-- For a statusline: `%{%v:lua.require'outpost.state'.statusline()%}`.
function M.statusline()
  local running = 0
  for _, run in pairs(M.runs) do
    running = running + (M.is_running(run) and 1 or 0)
  end
  local count = #vim.tbl_filter(M.is_shown, M.all_findings())
  local parts = {}
  if running > 0 then
    table.insert(parts, running .. " running")
    local run = M.newest(true)
    local routes = run and M.routes[run.id]
    if routes then
      table.insert(parts, routes[#routes].choice)
    end
  end
  if count > 0 then
    table.insert(parts, count .. (count == 1 and " finding" or " findings"))
  end
  return #parts > 0 and "outpost: " .. table.concat(parts, ", ") or ""
end

return M
