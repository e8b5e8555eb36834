-- Reviews that start by themselves, for those who asked for it: after a save, and after a commit made anywhere.
local M = {}

local QUIET_MS = 1500 -- many saves in a row are one review

local pending = {}
local watchers = {}

local function later(key, act)
  if pending[key] then
    pending[key]:stop()
  end
  pending[key] = vim.defer_fn(function()
    pending[key] = nil
    act()
  end, vim.g.outpost_quiet_ms or QUIET_MS)
end

-- The server of what was saved or committed, whatever buffer is shown by now.
local function review(client, argument)
  if client and not client:is_stopped() then
    require("outpost.client").command("review", argument, nil, client)
  end
end

-- The folder of the log of HEAD; git knows where it is in a linked worktree, where `.git` is a file.
local function log_folder(root, done)
  local question = { "git", "-C", root, "rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD" }
  pcall(vim.system, question, { text = true }, vim.schedule_wrap(function(answer)
    if answer.code == 0 then
      done(vim.fs.dirname(vim.trim(answer.stdout)))
    end
  end))
end

local function committed(root)
  if not vim.g.outpost_review_on_commit then
    return
  end
  later("commit " .. root, function()
    local client = vim.iter(vim.lsp.get_clients({ name = "outpost" })):find(function(one)
      return one.root_dir == root
    end)
    review(client, { scope = "commit", revision = "HEAD", uri = vim.uri_from_fname(root) })
  end)
end

-- Call `seen` with the names of what changes in a folder. The system tells; nothing polls.
local function watch_folder(root, folder, seen)
  local watcher = vim.uv.new_fs_event()
  if watcher and watcher:start(folder, {}, vim.schedule_wrap(function(_, name) seen(name) end)) then
    watchers[root] = watcher
  end
end

local function watch_log(root, log)
  watch_folder(root, log, function(name)
    if name == "HEAD" then
      committed(root)
    end
  end)
end

-- In a repository without commits there is no log: it begins with the first of them.
local function watch_first(root, log)
  local is_there = false
  local function look()
    if not is_there and vim.uv.fs_stat(log) then
      is_there = true
      watchers[root]:stop()
      watch_log(root, log)
      if vim.uv.fs_stat(vim.fs.joinpath(log, "HEAD")) then
        committed(root)
      end
    end
  end
  watch_folder(root, vim.fs.dirname(log), look)
  if watchers[root] then
    look()
  end
end

local function watch_commits(root)
  if not root or watchers[root] then
    return
  end
  log_folder(root, function(log)
    if not watchers[root] then
      local watch = vim.uv.fs_stat(log) and watch_log or watch_first
      watch(root, log)
    end
  end)
end

-- Whether commits of a repository are seen.
function M.is_watched(root)
  return watchers[root] ~= nil
end

function M.watch()
  local group = vim.api.nvim_create_augroup("outpost-automatic", { clear = true })
  vim.api.nvim_create_autocmd("BufWritePost", {
    group = group,
    callback = function(event)
      local client = vim.g.outpost_review_on_save and vim.lsp.get_clients({ name = "outpost", bufnr = event.buf })[1]
      if client then
        local uri = vim.uri_from_bufnr(event.buf)
        later(uri, function() review(client, { scope = "file", uri = uri }) end)
      end
    end,
  })
  vim.api.nvim_create_autocmd("LspAttach", {
    group = group,
    callback = function(event)
      local client = vim.lsp.get_client_by_id(event.data.client_id)
      if client and client.name == "outpost" and vim.g.outpost_review_on_commit then
        watch_commits(client.root_dir)
      end
    end,
  })
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = group,
    callback = function()
      for _, watcher in pairs(watchers) do
        watcher:stop()
      end
    end,
  })
end

return M
