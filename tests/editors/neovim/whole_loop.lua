-- The whole loop in a real Neovim: review, edits, code action, dismissal, delegation, steering, apply, cancel, exit.
-- Started by test_neovim.py, which names the plugin, the server and the repository in the environment.
local function say(...) io.stdout:write(table.concat(vim.tbl_map(tostring, { ... }), " ") .. "\n") end
local function fail(why)
  say("FAILED", why)
  vim.cmd("cquit 1")
end
local function check(what, condition)
  if not condition then fail(what) end
  say("ok", what)
end
local function wait(what, condition)
  if not vim.wait(60000, condition, 20) then fail("timed out: " .. what) end
  say("ok", what)
end

local plugin, repository, model = os.getenv("OUTPOST_PLUGIN"), os.getenv("OUTPOST_REPOSITORY"), os.getenv("OUTPOST_MODEL_URL")
vim.cmd("filetype on")
vim.opt.runtimepath:append(plugin)
vim.cmd("runtime plugin/outpost.lua")
local progress, messages = {}, {}
vim.api.nvim_create_autocmd("LspProgress", { callback = function(event)
  progress[#progress + 1] = event.data.params.value.kind
end })
local plainly = vim.notify
vim.notify = function(text) messages[#messages + 1] = text end

vim.lsp.config("outpost", {
  cmd = { os.getenv("OUTPOST_PYTHON"), "-m", "outpost_lsp", "serve" },
  init_options = {
    trusted = true,
    settings = {
      providers = { scripted = { kind = "openai", api = "chat", base_url = model } },
      models = { scripted = { provider = "scripted", name = "scripted" } },
      agents = {
        coordinator = { tools = { "files", "search", "git" }, subagents = { "reviewer" }, routing = "rules" },
        writer = { model = "scripted", tools = { "files", "edit" } },
        slow = { model = "scripted", tools = { "files" } },
      },
    },
  },
})
vim.lsp.enable("outpost")
vim.cmd.edit(repository .. "/app.py")
wait("the server is there", function()
  local client = vim.lsp.get_clients({ name = "outpost" })[1]
  return client ~= nil and client.initialized
end)
local state = require("outpost.state")
local buffer = vim.api.nvim_get_current_buf()

-- Review: findings appear as diagnostics.
vim.cmd("Outpost review")
wait("the review ends", function() return state.newest() and state.newest().status == "succeeded" end)
wait("findings are diagnostics", function() return #vim.diagnostic.get(buffer) >= 2 end)
check("they are ours", vim.diagnostic.get(buffer)[1].source == "outpost")
wait("progress was shown", function()
  return vim.tbl_contains(progress, "begin") and vim.tbl_contains(progress, "end")
end)

local function of(code)
  for _, diagnostic in ipairs(vim.diagnostic.get(buffer)) do
    if diagnostic.code == code then return diagnostic end
  end
end
local before = of("is-literal").lnum

-- They move with the text.
vim.api.nvim_buf_set_lines(buffer, 0, 0, false, { "# one", "# two", "# three" })
wait("findings follow an edit", function() return of("is-literal") and of("is-literal").lnum == before + 3 end)

-- The quickfix list and the code action.
vim.cmd("Outpost findings buffer")
check("the quickfix list has them", #vim.fn.getqflist() >= 2)
vim.cmd("cclose")
vim.api.nvim_win_set_cursor(0, { of("is-literal").lnum + 1, 5 })
vim.lsp.buf.code_action({ apply = true, filter = function(action) return action.isPreferred end })
wait("the fix is in the buffer", function()
  return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n"):find('path == "x"', 1, true) ~= nil
end)

-- Without a run that changed something there is nothing to apply, drop or bring back, and that is told.
for action, such in pairs({ apply = "pending", discard = "pending", reopen = "discarded or applied" }) do
  vim.cmd("Outpost " .. action)
  wait("nothing to " .. action .. " is told", function()
    return messages[#messages] == "outpost: nothing to " .. action .. ": no run has changes that are " .. such
  end)
end

-- Dismissal.
local left = of("undefined-name")
vim.api.nvim_win_set_cursor(0, { left.lnum + 1, 5 })
vim.cmd("Outpost dismiss meant so")
wait("a dismissed finding is gone", function() return not of("undefined-name") end)
wait("and not counted", function() return not state.statusline():find("finding", 1, true) end)
vim.ui.select = function(items, options, choose)
  check("a restoration names the finding", options.format_item(items[1]):find("app.py", 1, true) ~= nil)
  choose(items[1])
end
vim.cmd("Outpost restore")
wait("a restored finding is back", function() return of("undefined-name") ~= nil end)
wait("and counted in the statusline", function() return state.statusline() == "outpost: 1 finding" end)
vim.cmd("Outpost dismiss meant so")
wait("and dismissed again", function() return not of("undefined-name") end)

-- Delegation with routes and usage.
vim.cmd("Outpost coordinate review the uncommitted changes")
wait("a delegation is seen", function()
  local run = state.newest()
  return run.agent == "coordinator" and run.status == "succeeded" and #(state.subagents[run.id] or {}) > 0
end)
wait("usage was told", function() return state.usage[state.newest().id] ~= nil end)
wait("routes were told", function() return #(state.routes[state.newest().id] or {}) > 0 end)
local window = require("outpost.windows").runs()
check("the runs window shows it", table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"):find("coordinator", 1, true) ~= nil)
vim.api.nvim_win_close(window, true)
local titled = state.newest()
local title = titled.title
titled.title = ("a long title "):rep(20)
window = require("outpost.windows").runs()
local headline = vim.api.nvim_buf_get_lines(0, 0, 1, false)[1]
check("a long title is cut to one line, with the agent at its end",
  vim.fn.strdisplaywidth(headline) == vim.api.nvim_win_get_width(window) and headline:find("…  .coordinator.$") ~= nil)
vim.api.nvim_win_close(window, true)
titled.title = title
local long = "Outpost: Fix app.py:3: " .. ("a long title "):rep(10) .. ": nothing was changed"
vim.lsp.config.outpost.handlers["window/showMessage"](nil, { type = 3, message = long })
local told = vim.split(vim.trim(vim.fn.execute("messages")), "\n")
told = told[#told]
check("a long message says which run it is about and what came of it, in one line",
  vim.startswith(told, "Outpost: Fix app.py:3") and vim.endswith(told, ": nothing was changed")
    and vim.fn.strdisplaywidth(told) < vim.o.columns)

-- An agent that writes: diff and apply.
local client = require("outpost.client")
client.command("dispatch", { agent = "writer", brief = "write it" })
wait("the writer ends with changes", function()
  local run = state.newest()
  return run.agent == "writer" and run.status == "succeeded" and run.disposition == "pending"
end)
vim.cmd("Outpost diff")
wait("the diff is in a tab", function()
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"):find("+written", 1, true) ~= nil
end)
vim.cmd("tabclose")
vim.cmd("Outpost apply-and-save")
wait("what it changed is applied", function() return state.newest().disposition == "applied" end)
wait("which is told with its number", function() return vim.tbl_contains(messages, "outpost: applied to 1 file") end)
wait("and saved", function() return vim.uv.fs_stat(repository .. "/new.txt") ~= nil end)

-- Dropped: a later run that changed nothing does not stand in the way, and a name that is wrong means no other run.
client.command("dispatch", { agent = "writer", brief = "write another" })
wait("another writer ends with changes", function() return state.newest().disposition == "pending" end)
local dropped = state.newest().id
vim.cmd("Outpost review staged")
wait("a review that changed nothing is newer", function()
  return state.newest().id ~= dropped and not state.is_running(state.newest())
end)
vim.cmd("Outpost discard 20200101-000000-000000-000000")
wait("a run that is not there is told", function() return (messages[#messages] or ""):find("20200101", 1, true) ~= nil end)
check("and nothing was dropped for it", state.runs[dropped].disposition == "pending")
state.runs, state.order = {}, {}
vim.cmd("Outpost discard")
wait("the one with changes is dropped", function()
  return state.runs[dropped] ~= nil and state.runs[dropped].disposition == "discarded"
end)
wait("which is told", function() return (messages[#messages] or ""):find("outpost: discarded", 1, true) ~= nil end)
vim.cmd("Outpost reopen " .. dropped)
wait("and brought back", function() return state.runs[dropped].disposition == "pending" end)
wait("which is told, too", function() return (messages[#messages] or ""):find("wait again", 1, true) ~= nil end)

-- What is no command, or has too many words or the wrong ones, is told in one plain line, and nothing is done.
local told_by_tests, newest = vim.notify, state.newest().id
vim.notify = plainly
local actions = "one of apply, apply-and-save, cancel, clear, coordinate, diff, discard, dismiss, findings, fix, "
  .. "reopen, restore, review, runs, steer"
for typed, expected in pairs({
  [""] = actions,
  ["nonsense"] = actions,
  ["review nonsense"] = "one of uncommitted, staged, unstaged, branch, commit, file, selection, workspace",
  ["review file x"] = ":Outpost review file",
  ["review commit x y"] = ":Outpost review [SCOPE], review branch [BASE] or review commit [REVISION]",
  ["coordinate"] = "a task",
  ["steer"] = "an instruction",
  ["runs x"] = ":Outpost runs",
  ["findings x"] = ":Outpost findings [buffer]",
  ["cancel x y"] = ":Outpost cancel [RUN]",
  ["diff x y"] = ":Outpost diff [RUN]",
  ["discard x y"] = ":Outpost discard [RUN]",
  ["reopen x y"] = ":Outpost reopen [RUN]",
  ["restore x"] = ":Outpost restore",
  ["fix x"] = ":Outpost fix",
  ["clear x"] = ":Outpost clear",
}) do
  local output = vim.api.nvim_exec2("Outpost " .. typed, { output = true }).output
  check(typed .. " is told plainly", output == "outpost: " .. expected .. " is expected")
end
vim.notify = told_by_tests
for _, name in ipairs({ "cancel", "diff", "apply", "apply-and-save", "discard", "reopen" }) do
  vim.cmd("Outpost " .. name .. " 20200101-000000-000000-00000a")
  wait(name .. " of no run is told by the server", function()
    return (messages[#messages] or ""):find("00000a", 1, true) ~= nil
  end)
  messages[#messages + 1] = ""
end
check("no run came of it", state.newest().id == newest)

-- A slow agent: steer and cancel.
client.command("dispatch", { agent = "slow", brief = "wait for me" })
wait("the slow one runs", function()
  local run = state.newest(true)
  return run ~= nil and run.agent == "slow" and run.status == "running"
end)
check("the statusline tells of it", state.statusline():find("1 running", 1, true) ~= nil)
check("an instruction is asked for", vim.cmd("Outpost steer") == "" and messages[#messages] == "outpost: an instruction is expected")
vim.cmd("Outpost steer look at the tests too")
wait("the instruction reached it", function() return vim.tbl_contains(messages, "outpost: injected") end)
vim.cmd("Outpost cancel")
wait("it is cancelled", function() return state.newest().status == "cancelled" end)

-- By itself after a save, for those who asked for it.
vim.g.outpost_review_on_save, vim.g.outpost_quiet_ms = true, 10
local last = state.newest().id
vim.cmd("silent write")
wait("a save starts a review of the file", function()
  local run = state.newest()
  return run.id ~= last and run.kind == "review" and run.scope.scope == "file" and run.status == "succeeded"
end)
vim.g.outpost_review_on_save = false

-- Completion, runs that the server alone remembers, and health.
check("actions are completed", vim.tbl_contains(vim.fn.getcompletion("Outpost ", "cmdline"), "coordinate"))
check("scopes are completed", vim.deep_equal(vim.fn.getcompletion("Outpost review un", "cmdline"), { "uncommitted", "unstaged" }))
check("runs are completed", vim.tbl_contains(vim.fn.getcompletion("Outpost diff ", "cmdline"), state.newest().id))
local known = vim.tbl_count(state.runs)
state.runs, state.order = {}, {}
local again = require("outpost.windows").runs()
wait("earlier runs are asked for", function() return vim.tbl_count(state.runs) == known end)
vim.api.nvim_win_close(again, true)
vim.cmd("checkhealth outpost")
local health = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n")
check("health asks the server's doctor", health:find("offline reviewer", 1, true) ~= nil and not health:find("ERROR", 1, true))
vim.cmd("bwipeout!")

-- By itself after a commit, in a linked worktree, too, whatever buffer is shown by then.
vim.g.outpost_review_on_commit = true
local linked = os.getenv("OUTPOST_LINKED")
vim.cmd.edit(linked .. "/app.py")
local in_linked
wait("the worktree has a server", function()
  in_linked = vim.lsp.get_clients({ name = "outpost", bufnr = 0 })[1]
  return in_linked ~= nil and in_linked.initialized
end)
vim.cmd.edit(repository .. "/app.py")
local commit = { "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "--allow-empty", "-m", "x" }
wait("a commit is reviewed", function()
  -- The log is watched a moment after the buffer was opened.
  vim.system(commit, { cwd = linked }):wait()
  return vim.wait(5000, function()
    local run = state.newest()
    return run.scope ~= nil and run.scope.scope == "commit" and run.workspace == vim.uri_from_fname(linked)
  end, 20)
end)
in_linked:stop()

-- The first commit of a repository, too.
local empty = os.getenv("OUTPOST_EMPTY")
vim.cmd.edit(empty .. "/first.py")
local in_empty
wait("the empty repository has a server", function()
  in_empty = vim.lsp.get_clients({ name = "outpost", bufnr = 0 })[1]
  return in_empty ~= nil and in_empty.initialized
end)
wait("its folder is watched", function() return require("outpost.automatic").is_watched(empty) end)
vim.system({ "git", "add", "--all" }, { cwd = empty }):wait()
vim.system(commit, { cwd = empty }):wait()
wait("the first commit is reviewed", function()
  local run = state.newest()
  return run.scope ~= nil and run.scope.scope == "commit" and run.workspace == vim.uri_from_fname(empty)
    and run.status == "succeeded"
end)
in_empty:stop()
vim.g.outpost_review_on_commit = false

-- Exit.
local connected = vim.lsp.get_clients({ name = "outpost" })[1]
connected:stop()
wait("the server has gone", function() return connected:is_stopped() end)
say("PASSED", tostring(vim.version()))
vim.cmd("qall!")
