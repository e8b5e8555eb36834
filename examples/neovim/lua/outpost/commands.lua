-- `:Outpost ACTION ...`: one table of actions, each with its arguments, the most words it takes, and their completion.
local client = require("outpost.client")
local state = require("outpost.state")
local windows = require("outpost.windows")

local M = {}

local scopes = { "uncommitted", "staged", "unstaged", "branch", "commit", "file", "selection", "workspace" }

local RUN_ID = "^%d+%-%d+%-%d+%-%x+$"

local function run_ids(only_running)
  return function()
    local ids = {}
    for index = #state.order, 1, -1 do
      local run = state.runs[state.order[index]]
      if not only_running or state.is_running(run) then
        table.insert(ids, run.id)
      end
    end
    return ids
  end
end

-- The id of the running run that was named, else of the newest one. What was named is never taken for another.
local function running_id(id)
  local run = not id and state.newest(true)
  if not id and not run then
    vim.notify("outpost: nothing is running", vim.log.levels.WARN)
  end
  return id or run and run.id
end

-- Call `act` with the id of the run that was named, else of the newest whose changes are so; without one, say that there is
-- nothing to `what`. Later runs that changed nothing do not stand in the way, and runs of earlier sessions and of the
-- terminal are the server's to tell.
local function with_changes(what, id, dispositions, act)
  if id then
    act(id)
    return
  end
  client.command("runs", { limit = 50 }, function(result)
    vim.iter(result.runs):each(state.know)
    local run = state.newest_that(function(run) return vim.tbl_contains(dispositions, run.disposition) end)
    if run then
      act(run.id, run.title)
    else
      local such = table.concat(dispositions, " or ")
      vim.notify("outpost: nothing to " .. what .. ": no run has changes that are " .. such, vim.log.levels.WARN)
    end
  end)
end

-- What was typed is no such command. A warning: what is an error to Neovim ends the mapping or the script that asked.
local function misuse(expected)
  vim.notify("outpost: " .. expected .. " is expected", vim.log.levels.WARN)
end

-- The text of a command that needs one.
local function text_of(words, what)
  local text = table.concat(words, " ")
  if not text:find("%S") then
    misuse(what)
    return nil
  end
  return text
end

-- Put what a run changed into the buffers; `done` is called when that was possible.
local function apply(words, done)
  local named = words[1] and (state.runs[words[1]] or words[1]:match(RUN_ID)) and table.remove(words, 1) or nil
  with_changes("apply", named, { "pending" }, function(id)
    client.command("apply", { runId = id, paths = #words > 0 and words or nil }, function(result)
      for _, conflict in ipairs(result.conflicts) do
        vim.notify("outpost: " .. conflict.path .. ": " .. conflict.reason, vim.log.levels.WARN)
      end
      if #result.needsOwnAccept > 0 then
        vim.notify("outpost: left for you to name: " .. table.concat(result.needsOwnAccept, ", "))
      end
      if result.applied then
        vim.notify("outpost: applied to " .. #result.files .. (#result.files == 1 and " file" or " files"))
        if done then
          done(result)
        end
      end
    end)
  end)
end

-- Write the buffers of the files that were applied, and no others.
local function save(result)
  local root = client.get().root_dir or vim.fn.getcwd()
  for _, path in ipairs(result.files) do
    local buffer = vim.fn.bufnr(vim.fs.joinpath(root, path))
    if buffer ~= -1 and vim.bo[buffer].modified then
      vim.api.nvim_buf_call(buffer, function() vim.cmd("silent update") end)
    end
  end
end

local function here(finding_needed, act)
  local finding = state.under_cursor()
  if finding then
    act(finding)
  elseif finding_needed then
    vim.notify("outpost: there is no finding on this line", vim.log.levels.WARN)
  end
end

M.actions = {
  review = {
    usage = "review [SCOPE], review branch [BASE] or review commit [REVISION]",
    most = 2,
    complete = function() return scopes end,
    run = function(words, context)
      local scope = words[1] or (context.range > 0 and "selection" or "uncommitted")
      if not vim.tbl_contains(scopes, scope) then
        misuse("one of " .. table.concat(scopes, ", "))
        return
      elseif words[2] and scope ~= "commit" and scope ~= "branch" then
        misuse(":Outpost review " .. scope)
        return
      end
      local argument = { scope = scope, uri = vim.uri_from_bufnr(0) }
      if scope == "selection" then
        argument.range = {
          start = { line = context.line1 - 1, character = 0 },
          ["end"] = { line = context.line2, character = 0 },
        }
      elseif scope ~= "file" then
        argument.uri = nil
      end
      if scope == "commit" then
        argument.revision = words[2] or "HEAD"
      elseif scope == "branch" then
        argument.base = words[2]
      end
      client.command("review", argument)
    end,
  },
  coordinate = {
    run = function(words)
      local brief = text_of(words, "a task")
      if brief then
        client.command("coordinate", { brief = brief })
      end
    end,
  },
  runs = { usage = "runs", most = 0, run = function() windows.runs() end },
  findings = {
    usage = "findings [buffer]",
    most = 1,
    complete = function() return { "buffer" } end,
    run = function(words)
      if words[1] and words[1] ~= "buffer" then
        misuse(":Outpost findings [buffer]")
      else
        windows.quickfix(words[1] and vim.uri_from_bufnr(0) or nil)
      end
    end,
  },
  cancel = {
    usage = "cancel [RUN]",
    most = 1,
    complete = run_ids(true),
    run = function(words)
      local id = running_id(words[1])
      if id then
        client.command("cancel", { runId = id })
      end
    end,
  },
  steer = {
    run = function(words)
      local text = text_of(words, "an instruction")
      local id = text and running_id()
      if id then
        client.command("steer", { runId = id, text = text }, function(result)
          vim.notify("outpost: " .. result.delivery)
        end)
      end
    end,
  },
  diff = {
    usage = "diff [RUN]",
    most = 1,
    complete = run_ids(false),
    run = function(words)
      with_changes("show", words[1], { "pending", "applied", "discarded" }, function(id)
        client.command("diff", { runId = id }, windows.diff)
      end)
    end,
  },
  apply = {
    complete = run_ids(false),
    run = function(words) apply(words) end,
  },
  ["apply-and-save"] = {
    complete = run_ids(false),
    run = function(words) apply(words, save) end,
  },
  discard = {
    usage = "discard [RUN]",
    most = 1,
    complete = run_ids(false),
    run = function(words)
      with_changes("discard", words[1], { "pending" }, function(id, title)
        client.command("discard", { runId = id }, function()
          vim.notify("outpost: discarded: " .. (title or id))
        end)
      end)
    end,
  },
  reopen = {
    usage = "reopen [RUN]",
    most = 1,
    complete = run_ids(false),
    run = function(words)
      with_changes("reopen", words[1], { "discarded", "applied" }, function(id, title)
        client.command("reopen", { runId = id }, function()
          vim.notify("outpost: its changes wait again: " .. (title or id))
        end)
      end)
    end,
  },
  dismiss = {
    run = function(words)
      here(true, function(finding)
        local reason = table.concat(words, " ")
        client.command("dismiss", { findingId = finding.id, reason = reason ~= "" and reason or nil })
      end)
    end,
  },
  restore = {
    usage = "restore",
    most = 0,
    run = function()
      client.command("findings", { status = "dismissed" }, function(result)
        if #result.findings == 0 then
          vim.notify("outpost: nothing is dismissed")
          return
        end
        vim.ui.select(result.findings, {
          prompt = "Restore which finding?",
          format_item = function(finding)
            return vim.fn.fnamemodify(vim.uri_to_fname(finding.uri), ":.") .. ": " .. finding.title
          end,
        }, function(finding)
          if finding then
            client.command("restore", { findingId = finding.id })
          end
        end)
      end)
    end,
  },
  fix = {
    usage = "fix",
    most = 0,
    run = function()
      here(true, function(finding) client.command("fix", { findingId = finding.id }) end)
    end,
  },
  clear = { usage = "clear", most = 0, run = function() client.command("clear") end },
}

local function names()
  local all = vim.tbl_keys(M.actions)
  table.sort(all)
  return all
end

function M.run(context)
  local words = vim.deepcopy(context.fargs)
  local name = table.remove(words, 1)
  local action = name and M.actions[name]
  if not action then
    misuse("one of " .. table.concat(names(), ", "))
    return
  elseif action.most and #words > action.most then
    misuse(":Outpost " .. action.usage)
    return
  end
  action.run(words, context)
end

function M.complete(lead, line)
  local words = vim.split(line, "%s+")
  -- A range may stand before the command; the action is the word after it.
  local position = #words - 1
  local options = names()
  if position > 1 then
    local action = M.actions[words[2]]
    options = action and action.complete and action.complete() or {}
  end
  return vim.tbl_filter(function(option)
    return vim.startswith(option, lead)
  end, options)
end

return M
